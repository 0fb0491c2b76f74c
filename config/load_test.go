package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func load(t *testing.T, o LoadOptions) *Broker {
	t.Helper()
	b, _, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOutOfTheBox(t *testing.T) {
	b, report, err := Load(LoadOptions{})
	if err != nil || len(report.Unknown)+len(report.WithoutEffect)+len(report.Warnings) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	want := []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092, Protocol: "PLAINTEXT"}}
	if !slices.Equal(b.Listeners(), want) || len(b.AdvertisedListeners()) > 0 || b.NodeID() != 1 || !slices.Equal(b.LogDirs(), []string{"./data"}) ||
		b.String("http.listener") != "127.0.0.1:9644" || b.InterBrokerListener() != "PLAINTEXT" || b.Int("num.partitions") != 1 {
		t.Errorf("%+v", b.Listeners())
	}
	if err := b.Supported(); err != nil {
		t.Error(err)
	}
}

// TestTheLaterWins: default, file, environment, command line.
func TestTheLaterWins(t *testing.T) {
	path := file(t, "num.partitions=2\nlog.retention.bytes=2\nmessage.max.bytes=2\nlog.dirs=/x\n")
	b := load(t, LoadOptions{
		File: path,
		Env:  []string{"KAFKA_NUM_PARTITIONS=3", "KAFKA_MESSAGE_MAX_BYTES=3", "PATH=/bin", "KAFKA_HEAP_OPTS=-Xmx1g", "KAFKA_OPTS=x", "KAFKA_LOG4J_OPTS=x", "KAFKA_JVM_PERFORMANCE_OPTS=x", "KAFKA_VERSION=4"},
		Set:  []string{"message.max.bytes=4", "http.listener="},
	})
	for key, want := range map[string]int64{"log.retention.bytes": 2, "num.partitions": 3, "message.max.bytes": 4, "fetch.max.bytes": 57671680} {
		if got := b.Int(key); got != want {
			t.Errorf("%s is %d, want %d", key, got, want)
		}
		if b.IsSet(key) != (key != "fetch.max.bytes") {
			t.Errorf("IsSet(%s)", key)
		}
	}
	if b.String("http.listener") != "" || !b.IsSet("http.listener") || b.Listeners()[0].Port != 9092 || b.Listeners()[0].Host != "" {
		t.Error(b.Listeners())
	}
	// The lines of the broker out of the box are a file too.
	b = load(t, LoadOptions{Env: []string{"KAFKA_LISTENERS=PLAINTEXT://:0"}, Set: []string{"node.id=7"}})
	if b.NodeID() != 7 || b.Listeners()[0].Port != 0 || b.LogDirs()[0] != "./data" {
		t.Error(b.NodeID(), b.Listeners())
	}
}

func TestNamesInTheEnvironment(t *testing.T) {
	got := fromEnv([]string{"KAFKA_A_B=1", "KAFKA_A__B=2", "KAFKA_A___B_C=3", "KAFKA_LISTENER_NAME_EXTERNAL_SCRAM___SHA___256_SASL_JAAS_CONFIG=x=y", "KAFKA_=z", "OTHER=1", "KAFKA_EMPTY="})
	want := map[string]string{"a.b": "1", "a_b": "2", "a-b.c": "3", "listener.name.external.scram-sha-256.sasl.jaas.config": "x=y", "empty": ""}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestReportNamesWhatHasNoEffect(t *testing.T) {
	_, report, err := Load(LoadOptions{Set: []string{"num.io.threads=9", "zookeeper.connect=x", "b.c=1", "num.partitions=5", "listener.name.plaintext.ssl.keystore.location=/x", "log.index.size.max.bytes=4"}})
	if err != nil || !slices.Equal(report.WithoutEffect, []string{"listener.name.plaintext.ssl.keystore.location", "num.io.threads"}) ||
		!slices.Equal(report.Unknown, []string{"b.c", "zookeeper.connect"}) || len(report.Warnings) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestKafkasOwnServerProperties: the file that Kafka ships for a single node starts it as it is.
func TestKafkasOwnServerProperties(t *testing.T) {
	b, report, err := Load(LoadOptions{File: "testdata/server.properties"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Supported(); err != nil {
		t.Error(err)
	}
	if len(report.Unknown) > 0 || !slices.Equal(report.WithoutEffect, []string{"num.io.threads", "num.network.threads", "share.coordinator.state.topic.min.isr",
		"share.coordinator.state.topic.replication.factor", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}) {
		t.Errorf("%+v", report)
	}
	if len(b.Listeners()) != 1 || b.Listeners()[0].Port != 9092 || len(b.ControllerListeners()) != 1 || b.ControllerListeners()[0].Protocol != "PLAINTEXT" ||
		len(b.AdvertisedListeners()) != 1 || b.AdvertisedListeners()[0].Host != "localhost" || b.RetentionMs() != 168*hour {
		t.Errorf("%+v", b.listeners)
	}
}

func TestWrongValuesAreOneLine(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"num.partitions=abc"}, "num.partitions=abc: Not a number of type INT; allowed is an integer of at least 1"},
		{[]string{"num.partitions=0"}, "num.partitions=0: Value must be at least 1; allowed is an integer of at least 1"},
		{[]string{"auto.create.topics.enable=yes"}, "auto.create.topics.enable=yes: Expected value to be either true or false; allowed is true or false"},
		{[]string{"compression.type=foo"}, "compression.type=foo: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer; allowed is one of uncompressed, zstd, lz4, snappy, gzip, producer"},
		{[]string{"log.cleanup.policy=x"}, "log.cleanup.policy=x: String must be one of: compact, delete; allowed is a list separated by commas of compact, delete"},
		{[]string{"process.roles="}, "process.roles=: Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]; allowed is a list separated by commas of broker, controller that is not empty"},
		{[]string{"compression.gzip.level=0"}, "compression.gzip.level=0: Value must be between 1 and 9 or equal to -1; allowed is an integer from 1 to 9, or -1"},
		{[]string{"http.listener=9644"}, "http.listener=9644: Expected host:port; allowed is host:port, or nothing"},
		{[]string{"controller.quorum.voters=localhost:1"}, "controller.quorum.voters=localhost:1: Invalid configuration value for controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`.; allowed is a list separated by commas of id@host:port"},
		{[]string{"novalue"}, "--set=novalue: not a setting; allowed is key=value"},
		{[]string{"broker.id=2"}, "broker.id=2: not the node.id, which is 1; allowed is the same value, or to leave it out"},
		{[]string{"group.min.session.timeout.ms=5000000"}, "group.min.session.timeout.ms=5000000: greater than group.max.session.timeout.ms, which is 1800000"},
		{[]string{"listeners=PLAINTEXT"}, "listeners=PLAINTEXT: not a listener; allowed is NAME://host:port"},
		{[]string{"listeners=PLAINTEXT://:99999"}, "listeners=PLAINTEXT://:99999: port is out of range; allowed is 0 to 65535"},
		{[]string{"listeners=PLAINTEXT://:1,plaintext://:2"}, "listeners=PLAINTEXT://:1,plaintext://:2: listener PLAINTEXT stands in it twice; allowed is one entry of each name"},
		{[]string{"listeners=PLAINTEXT://:1,SSL://h:1"}, "listeners=PLAINTEXT://:1,SSL://h:1: PLAINTEXT and SSL have the same port; allowed is a port for each"},
		{[]string{"listeners=INSIDE://:1"}, "listeners=INSIDE://:1: no security protocol is defined for listener INSIDE; allowed is a name of listener.security.protocol.map"},
		{[]string{"controller.listener.names=PLAINTEXT"}, "listeners=PLAINTEXT://127.0.0.1:9092: no listener for clients; allowed is at least one that is not in controller.listener.names"},
		{[]string{"inter.broker.listener.name=X"}, "inter.broker.listener.name=X: no such listener; allowed is PLAINTEXT"},
		{[]string{"advertised.listeners=X://h:1"}, "advertised.listeners=X://h:1: no listener is named X; allowed is the names of listeners: PLAINTEXT"},
		{[]string{"advertised.listeners=PLAINTEXT://0.0.0.0:1"}, "advertised.listeners=PLAINTEXT://0.0.0.0:1: clients cannot connect to 0.0.0.0; allowed is an address that can be routed"},
		{[]string{"listener.security.protocol.map=A:B"}, "listener.security.protocol.map=A:B: not a protocol of a listener; allowed is NAME:PROTOCOL with one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"},
	} {
		_, _, err := Load(LoadOptions{Set: c.set})
		var line *Error
		if !errors.As(err, &line) || line.Error() != c.want {
			t.Errorf("%v: %v\nwant %s", c.set, err, c.want)
		}
	}
	if _, _, err := Load(LoadOptions{File: "testdata/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	d := brokerKeys().find("ssl.key.password")
	if s := d.refuse("ssl.key.password", "secret", errors.New("no")).Error(); strings.Contains(s, "secret") {
		t.Error(s)
	}
}

func TestWhatIsNotBuiltStopsTheStart(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // a part of the line; "" if it starts
	}{
		{nil, ""},
		{[]string{"listeners=SSL://:1"}, "security protocol SSL"},
		{[]string{"listeners=PLAINTEXT://:2,IN://:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT"}, "security protocol SASL_PLAINTEXT"},
		{[]string{"listeners=PLAINTEXT://:2,IN://:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,IN:PLAINTEXT"}, ""},
		{[]string{"security.inter.broker.protocol=SSL"}, "security.inter.broker.protocol=SSL"},
		{[]string{"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, "authorization"},
		{[]string{"authorizer.class.name="}, ""},
		{[]string{"remote.log.storage.system.enable=true"}, "tiered storage"},
		{[]string{"log.dirs=/a,/b"}, ""},
		{[]string{"log.dirs=/a,/a"}, ""},
		{[]string{"process.roles=broker"}, "clusters"},
		{[]string{"process.roles=broker,controller"}, ""},
		{[]string{"controller.quorum.voters=1@h:1,2@h:2"}, "clusters"},
		{[]string{"controller.quorum.voters=1@localhost:9093"}, ""},
		{[]string{"controller.quorum.bootstrap.servers=a:1,b:1"}, "clusters"},
		{[]string{"controller.quorum.bootstrap.servers=localhost:9093"}, ""},
	} {
		err := load(t, LoadOptions{Set: c.set}).Supported()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.set, err)
		}
	}
}

func TestNodeIDAndBrokerIDAreOne(t *testing.T) {
	for _, c := range []struct {
		text string
		want int32
	}{{"", 1}, {"node.id=3", 3}, {"broker.id=4", 4}, {"broker.id=5\nnode.id=5", 5}, {"broker.id=-1\nlog.dirs=x", 1}} {
		b := load(t, LoadOptions{File: file(t, c.text)})
		if b.NodeID() != c.want {
			t.Errorf("%q: %d", c.text, b.NodeID())
		}
		if e, _ := b.Describe("broker.id"); c.want > 1 && e.Value != formatInt(int64(c.want)) {
			t.Errorf("%q: broker.id is %s", c.text, e.Value)
		}
	}
}

func TestControllersMayBeAdvertised(t *testing.T) {
	b := load(t, LoadOptions{Set: []string{
		"listeners=PLAINTEXT://:9092,CONTROLLER://:9093,OUT://[::1]:9094", "controller.listener.names=CONTROLLER", "inter.broker.listener.name=out",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT", "advertised.listeners=CONTROLLER://c:1,OUT://o.example:2",
		"listener.name.out.max.connections=5",
	}})
	if len(b.Listeners()) != 2 || b.Listeners()[1].Host != "::1" || len(b.ControllerListeners()) != 1 || b.InterBrokerListener() != "OUT" ||
		!slices.Equal(b.AdvertisedListeners(), []Listener{{"OUT", "o.example", 2, "PLAINTEXT"}}) {
		t.Errorf("%+v", b.listeners)
	}
	if v, ok := b.ListenerValue("OUT", "max.connections"); !ok || v != "5" {
		t.Error(v)
	}
}

func TestPropertiesAreJavas(t *testing.T) {
	text := "# comment\n! comment \\\na=1\n  b : 2\nc 3\nd\ne=\nf = with blanks \ng=one,\\\n   two,\\\n\tthree\nh\\ i\\=j=k\\tl\\u00e9\\\\\nm=a=b:c\r\nn=x\ra=again\n\n   \no=\\q\np=end\\"
	got, err := parseProperties(text)
	want := map[string]string{"a": "again", "b": "2", "c": "3", "d": "", "e": "", "f": "with blanks ", "g": "one,two,three", "h i=j": "k\tlé\\", "m": "a=b:c", "n": "x", "o": "q", "p": "end"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{`a=\u12`, `a=\uzzzz`} {
		if _, err := parseProperties(bad); err == nil {
			t.Error(bad)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=b\\\n c\n#x\n\\u0041:1")
	f.Fuzz(func(t *testing.T, text string) {
		props, err := parseProperties(text)
		if err == nil {
			_, _, err = resolve(props)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}

// FuzzValue: no value of any key makes more than an error of one line.
func FuzzValue(f *testing.F) {
	f.Add("listeners", "PLAINTEXT://:9092")
	f.Add("log.cleaner.min.cleanable.ratio", "1e3")
	f.Add("controller.quorum.voters", "1@h:1")
	f.Fuzz(func(t *testing.T, key, value string) {
		_ = CheckBroker(key, value)
		_ = CheckTopic(key, value)
		_ = CheckGroup(key, value)
		_ = CheckClientMetrics(key, value)
		if _, _, err := resolve(map[string]string{key: value}); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}
