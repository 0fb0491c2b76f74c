package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestTablesAreWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		defs []Def
		want int
	}{{"broker", BrokerDefs(), 350}, {"topic", TopicDefs(), 37}, {"group", GroupDefs(), 21}, {"client metrics", ClientMetricsDefs(), 3}, {"own", OwnDefs(), 2}} {
		if len(c.defs) != c.want {
			t.Errorf("%s: %d keys, want %d", c.name, len(c.defs), c.want)
		}
		if !slices.IsSortedFunc(c.defs, func(a, b Def) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: not ascending", c.name)
		}
	}
	for _, table := range []*table{brokerKeys(), topicKeys(), groupKeys(), metricsKeys()} {
		if len(table.index) != len(table.defs) {
			t.Error("a key stands in a table twice")
		}
		for _, d := range table.defs {
			if len(d.Doc) < 10 || !strings.HasSuffix(d.Doc, ".") || d.Allowed() == "" {
				t.Errorf("%s: %q, %q", d.Name, d.Doc, d.Allowed())
			}
			if d.NullDefault || d.NoDefault {
				continue
			}
			if v, err := d.parse(d.Default); err != nil || v.text != d.Default {
				t.Errorf("%s: default %q is read as %q: %v", d.Name, d.Default, v.text, err)
			}
		}
	}
	for _, d := range slices.Concat(topicTable, groupTable) {
		if d.Broker != "" && brokerKeys().find(d.Broker) == nil {
			t.Errorf("%s: no key %s", d.Name, d.Broker)
		}
	}
}

// TestChecksAreKafkas compares with what Kafka's own checks answered to the same values.
func TestChecksAreKafkas(t *testing.T) {
	file := "testdata/kafka-4.4-checks.tsv"
	if other := os.Getenv("KAFKA_CHECKS"); other != "" {
		file = other
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	check := map[string]func(name, value string) error{"broker": CheckBroker, "topic": CheckTopic, "group": CheckGroup, "metrics": CheckClientMetrics}
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		// Kafka drops elements that are named again before it checks; and these two are checked elsewhere.
		if strings.Contains(f[3], "must not be duplicated") || f[1] == "match" || f[1] == "interval.ms" {
			continue
		}
		got := "OK"
		if err := check[f[0]](f[1], f[2]); err != nil {
			got = err.Error()
		}
		if got != f[3] && f[1] != "remote.storage.enable" {
			t.Errorf("%s %s=%q: %s\nwant %s", f[0], f[1], f[2], got, f[3])
		}
	}
}

func TestChecksAsClientsSeeThem(t *testing.T) {
	for _, c := range []struct {
		overrides map[string]string
		want      string
	}{
		{map[string]string{"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{map[string]string{"foo": "1", "retention.ms": "abc"}, "Unknown topic config name: foo"},
		{map[string]string{"": "1"}, "Unknown topic config name: "},
		{map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"},
		{map[string]string{"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
		{map[string]string{"compression.type": "foo", "retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{map[string]string{"min.cleanable.dirty.ratio": "2"}, "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{map[string]string{"cleanup.policy": "compact,compact", "retention.ms": " 5 ", "internal.segment.bytes": "0", "leader.replication.throttled.replicas": "0:1,1:2"}, ""},
		{map[string]string{"cleanup.policy": ""}, ""},
		{map[string]string{"cleanup.policy": "compact,,delete"}, "Configuration 'cleanup.policy' values must not be empty."},
		{map[string]string{"cleanup.policy": ","}, "Configuration 'cleanup.policy' values must not be empty."},
		{nil, ""},
	} {
		got := ""
		if err := CheckTopicConfigs(c.overrides); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.overrides, got, c.want)
		}
	}
	if err := CheckBroker("listener.name.internal.max.connections", "x"); err == nil || !strings.HasSuffix(err.Error(), "Not a number of type INT") {
		t.Error(err)
	}
	if err := CheckBroker("whatever", "x"); err != nil {
		t.Error(err)
	}
	if err := CheckGroup("foo", "1"); err == nil || err.Error() != "Unknown group config name: foo" {
		t.Error(err)
	}
	for value, want := range map[string]string{"1": "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)", "100": ""} {
		if err := CheckClientMetrics("interval.ms", value); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Error(err)
		}
	}
	if err := CheckClientMetrics("match", "client_id=[a"); err == nil || err.Error() != "Illegal client matching pattern: client_id=[a" {
		t.Error(err)
	}
}

func TestKeysWithAListenersPrefix(t *testing.T) {
	for name, want := range map[string]string{
		"listener.name.external.ssl.keystore.location":                 "ssl.keystore.location",
		"listener.name.external.scram-sha-256.sasl.jaas.config":        "sasl.jaas.config",
		"listener.name.external.oauthbearer.sasl.login.class":          "sasl.login.class",
		"listener.name.external.sasl.enabled.mechanisms":               "sasl.enabled.mechanisms",
		"listener.name.external.plain.sasl.server.max.receive.size":    "sasl.server.max.receive.size",
		"listener.name.external":                                       "",
		"listener.name.external.nothing":                               "",
		"http.listener":                                                "http.listener",
		"log.initial.task.delay.ms":                                    "log.initial.task.delay.ms",
		"nothing":                                                      "",
		"listener.name.internal.connections.max.idle.ms":               "connections.max.idle.ms",
		"listener.name.internal.scram-sha-512.sasl.login.class.nosuch": "",
	} {
		if d, ok := BrokerDef(name); d.Name != want || ok != (want != "") {
			t.Errorf("%s: %q", name, d.Name)
		}
	}
}
