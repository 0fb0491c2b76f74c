package differential

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	randomFlag = flag.Int("random", 0, "compare so many `rounds` of random requests with the Apache Kafka of -kafka, which must be a fresh one")
	seedFlag   = flag.Uint64("seed", 1, "of the first `round`; each round has the next one")
)

// Random requests are answered as by an Apache Kafka that runs beside: requests of one API, odd ones mostly, with some of others
// between. A difference ends a round; so does what Kafka does not answer, or answers with UNKNOWN_SERVER_ERROR, and is not compared.
func TestRandomRequests(t *testing.T) {
	if *randomFlag == 0 || *kafkaFlag == "" {
		t.Skip("needs -kafka and -random")
	}
	address := *kafkaFlag
	*kafkaFlag = "" // the scripts' own broker is the other side
	ours := shared(t)
	*kafkaFlag = address
	theirs := kafka{t: t, addr: address}
	if before := topicsOf(t, theirs); len(before) > 0 {
		t.Fatalf("the Apache Kafka is not a fresh one, it has topics: %v", before)
	}
	apis := comparableAPIs(t, ours)
	for i := range uint64(*randomFlag) {
		seed := *seedFlag + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, ours, theirs)
			p.forgetNameless()
			q := &requester{Rand: rand.New(rand.NewPCG(seed, 0)), apis: apis}
			for _, source := range preparations {
				p.ask(source)
			}
			api := apis[q.IntN(len(apis))]
			agree := true
			for step := 0; step < 30 && agree; step++ {
				agree = p.ask(q.request(api))
			}
			if agree {
				p.ask("ListGroups v2") // what no answer has shown; without states, which change by themselves
			}
		})
	}
}

// preparations give the requests something to meet.
var preparations = []string{
	"CreateTopics v7 Topics=[Topic=%a NumPartitions=2 ReplicationFactor=1; Topic=%b NumPartitions=1 ReplicationFactor=1 Configs=[Name=cleanup.policy Value=compact]]",
	"ListOffsets v7 ReplicaID=-1 Topics=[Topic=%a Partitions=[Partition=0 Timestamp=-1; Partition=1 Timestamp=-1]] | while /ErrorCode/",
	"ListOffsets v7 ReplicaID=-1 Topics=[Topic=%b Partitions=[Partition=0 Timestamp=-1]] | while /ErrorCode/",
	"Produce v9 Acks=-1 Topics=[Topic=%a Partitions=[Partition=0 Records=batch(a b c)]]",
	"InitProducerID v4 TransactionalID=%t TransactionTimeoutMillis=60000",
	"OffsetCommit v8 Group=%g Topics=[Topic=%a Partitions=[Partition=0 Offset=2]]",
}

// topicsOf are the names of a broker's topics; it is asked for all, which makes none.
func topicsOf(t *testing.T, broker peer) (names []string) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	for _, topic := range roundTrip(t, broker, req).(*kmsg.MetadataResponse).Topics {
		names = append(names, *topic.Topic)
	}
	return names
}

// comparableAPIs are the APIs that a round may ask for: without those that end the broker, or tell who it is.
func comparableAPIs(t *testing.T, broker peer) []kmsg.ApiVersionsResponseApiKey {
	all := roundTrip(t, broker, kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse).ApiKeys
	without := []string{"ApiVersions", "AlterClientQuotas", "UnregisterBroker", "UpdateFeatures"}
	return slices.DeleteFunc(all, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return slices.Contains(without, kmsg.NameForKey(k.ApiKey))
	})
}

// roundTrip asks on a connection of its own.
func roundTrip(t *testing.T, broker peer, req kmsg.Request) kmsg.Response {
	c, err := dial(broker.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.sock.Close()
	if err := c.send(req); err != nil {
		t.Fatal(err)
	}
	resp, _, err := c.receive(patience)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// pair is two brokers that are asked the same, in one namespace.
type pair struct {
	t            *testing.T
	ours, theirs *runner
}

func newPair(t *testing.T, ours, theirs peer) *pair {
	s := &script{name: "random", path: "random"}
	p := &pair{t, newRunner(t, s, ours, nil), newRunner(t, s, theirs, nil)}
	p.ours.names.tag, p.ours.names.now = p.theirs.names.tag, p.theirs.names.now
	for _, r := range []*runner{p.ours, p.theirs} {
		r.names.cluster = r.clusterID()
		r.warm()
	}
	return p
}

// forgetNameless deletes the group without a name, which all rounds share: without lasting offsets it goes when its broker next
// looks for expired ones, and the two don't do that at the same moment.
func (p *pair) forgetNameless() {
	for _, r := range []*runner{p.ours, p.theirs} {
		if _, err := r.internal(`DeleteGroups v2 Groups=[""]`, ""); err != nil {
			p.t.Fatal(err)
		}
	}
}

// elsewhere is what other rounds, or the brokers themselves, have made.
var elsewhere = regexp.MustCompile(`^d[a-z]{6}-|catch-up|warm|^__`)

// fault is what Apache Kafka says when it should say something else.
var fault = regexp.MustCompile(`^no answer|UNKNOWN_SERVER_ERROR|NextCursor=\{.* Partition=-`)

// ask tells whether both still agree.
func (p *pair) ask(source string) bool {
	p.t.Helper()
	c, err := parseCommand(source)
	if err != nil {
		p.t.Fatal(err)
	}
	c.unordered = true
	c.mask = []string{"Dir", "TotalBytes", "UsableBytes", "Size"}
	for _, field := range []string{"TransactionalID", "Group", "Topic", "Name", "ResourceName"} {
		c.without = append(c.without, rowFilter{field, elsewhere})
	}
	before := [2]*names{p.ours.names.clone(), p.theirs.names.clone()}
	got, err := p.ours.execute(c)
	if err != nil && strings.Contains(err.Error(), "has not been seen") {
		p.ours.names = before[0]
		return true
	}
	want, err2 := p.theirs.execute(c)
	if err != nil || err2 != nil {
		p.ours.names, p.theirs.names = before[0], before[1]
		p.t.Fatalf("%s\n%v, Kafka: %v", source, err, err2)
	}
	if changesMetadata[c.verb] {
		if err := p.theirs.catchUp(); err != nil {
			p.t.Fatal(err)
		}
	}
	if c.verb == "EndTxn" || c.verb == "InitProducerID" {
		p.theirs.internal("DescribeTransactions v0 TransactionalIDs=[%t %u] | while /Prepare/", "")
	}
	if got != want && !fault.MatchString(want) {
		p.t.Errorf("%s\n%s", source, diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
	return got == want
}

// requester makes up requests, as scripts have them.
type requester struct {
	*rand.Rand
	apis    []kmsg.ApiVersionsResponseApiKey
	api     string
	version int16
}

// request is one of an API, in any version; now and then of another API.
func (q *requester) request(k kmsg.ApiVersionsResponseApiKey) string {
	if q.IntN(8) == 0 {
		k = q.apis[q.IntN(len(q.apis))]
	}
	q.api = kmsg.NameForKey(k.ApiKey)
	first := k.MinVersion
	if q.api == "Produce" {
		first = 3
	}
	q.version = first + int16(q.IntN(int(k.MaxVersion-first+1)))
	patience := "700ms"
	if q.api == "JoinGroup" {
		patience = "5s"
	}
	fields := strings.TrimPrefix(q.fields(reflect.TypeOf(kmsg.RequestForKey(k.ApiKey)).Elem()), "{}")
	return fmt.Sprintf("%s v%d %s | for %s", q.api, q.version, fields, patience)
}

// tagged are the first versions of fields that kmsg writes in every flexible version, as Kafka would not have it.
var tagged = map[string]int16{"ReplicaState": 15, "ReplicaDirectoryID": 17, "HighWatermark": 18}

// fields is the text of a struct: most of its fields.
func (q *requester) fields(t reflect.Type) string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		since, isTagged := tagged[f.Name]
		switch {
		case f.Name == "Version" || f.Name == "UnknownTags" || !f.IsExported():
		case q.api == "Fetch" && isTagged && q.version < since:
		case q.IntN(6) == 0 && !slices.Contains([]string{"Acks", "ValidateOnly", "Topic", "Topics", "Partition"}, f.Name):
		default:
			all = append(all, f.Name+"="+q.value(f.Name, f.Type))
		}
	}
	if len(all) == 0 {
		return "{}"
	}
	return strings.Join(all, " ")
}

func (q *requester) value(name string, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		if q.IntN(3) == 0 {
			return "null"
		}
		return q.value(name, t.Elem())
	case reflect.Struct:
		return "{" + strings.TrimPrefix(q.fields(t), "{}") + "}"
	case reflect.Slice:
		return q.list(name, t.Elem())
	case reflect.String:
		return q.pick(name, `x "" rep(x,300) %a 1`)
	case reflect.Bool:
		return q.pick(name, "true false")
	case reflect.Array:
		return q.pick(name, "#%a #%a #%b #1")
	case reflect.Float64:
		return q.pick(name, "1 1000 0 -1 1.5")
	case reflect.Int8:
		return q.pick(name, "0 1 2 3 4 -1 127")
	case reflect.Int16:
		return q.pick(name, "0 1 -1 2 5")
	case reflect.Int32:
		return q.pick(name, "0 1 -1 2 2147483647 -2147483648")
	}
	return q.pick(name, "0 1 -1 2 1000")
}

// list has one element mostly; now and then none, several, or the same again.
func (q *requester) list(name string, t reflect.Type) string {
	if t.Kind() == reflect.Uint8 {
		return q.pick(name, `x hex() hex(00ff) rep(x,100)`)
	}
	n, sep := 1, " "
	if t.Kind() == reflect.Struct {
		sep = "; "
	}
	switch odds := q.IntN(14); {
	case name == "Transactions": // see transaction-twice
	case q.api == "DescribeTopicPartitions" && odds < 2: // all topics, other rounds' too
	case odds == 0:
		return "null"
	case odds == 1:
		return "[]"
	case odds < 6:
		n = 2 + q.IntN(2)
	}
	var rows []string
	for range n {
		switch {
		case len(rows) > 0 && q.IntN(3) == 0:
			rows = append(rows, rows[0])
		case t.Kind() == reflect.Struct:
			rows = append(rows, q.fields(t))
		default:
			rows = append(rows, q.value(name, t))
		}
	}
	return "[" + strings.Join(rows, sep) + "]"
}

// pick chooses a value of a field: of the ones that mean something to it, or of the usual ones.
func (q *requester) pick(name, usual string) string {
	for _, key := range []string{q.api + "." + name, name} {
		if known, ok := meaningful[key]; ok {
			usual = known
			break
		}
	}
	values := quotedItem.FindAllString(usual, -1)
	return values[q.IntN(len(values))]
}

var quotedItem = regexp.MustCompile(`[a-z]+\([^)]*\)|"[^"]*"|[^ ]+`)

// meaningful are values by the names of fields, also of one API.
var meaningful = func() map[string]string {
	topics := `%a %a %a %b %b %none "" "a/b" rep(x,250) __consumer_offsets`
	newTopics := `%a %n1 %n2 %n3 "" "." "a/b" rep(x,250)`
	configs := `retention.ms retention.ms cleanup.policy segment.bytes nosuch "" metrics interval.ms min.insync.replicas compression.type`
	groups := `%g %g %g %h %none ""`
	ids := `%t %t %t %u %none ""`
	m := map[string]string{
		"CreateTopics.Name": configs, "AlterConfigs.Name": configs, "IncrementalAlterConfigs.Name": configs,
		"Metadata.Topic": `%a %a %b "" "a/b" rep(x,250)`, // none that is made only now, sooner or later
		"JoinGroup.Name": `range rr ""`, "Protocol": `range rr ""`, "ProtocolType": `consumer consumer connect ""`,
		"Value": `1 1000 abc "" compact compact,delete -1 2147483648 ,`, "ResourceName": `%a %a %b %none "" 1 2 root x %g`,
		"MemberID": `"" "" x c-$U1 c-$U2`, "InstanceID": `i1 i2 ""`, "Dir": `/nosuch "" relative`,
		"EntityType": `user client-id ip nosuch ""`, "Partition": "0 0 0 0 1 2 3 -1 2147483647", "Partitions": "0 0 0 1 2 3 -1",
		"NumPartitions": "0 1 1 3 -1 -2 2147483647", "ReplicationFactor": "1 1 -1 0 2 32767", "ProducerID": "$P1 $P1 $P1 -1 0 5 $P2",
		"ProducerIDFilters": "$P1 $P1 5", "ProducerEpoch": "0 0 0 1 2 -1 32767", "CurrentLeaderEpoch": "0 -1 -1 1 5 -2",
		"LastFetchedEpoch": "0 -1 -1 1 5", "SessionID": "0 0 $S1 $S1 7", "SessionTimeoutMillis": "6000 10000 5999 -1 0",
		"TransactionTimeoutMillis": "60000 60000 1000 0 -1 2147483647", "Acks": "-1 -1 1 2 -2", "ResourceType": "2 2 2 4 8 16 32 0 1 3 64 -1",
		"Timestamp": "-1 -2 -3 0 now now-1000 -4 -5 -6 -7 9223372036854775807", "IsolationLevel": "0 1 0 1 0 1 2", "Op": "0 1 2 3 0",
		"Generation": "1 1 -1 0 2", "Broker": "1 1 -1 0 2", "Replicas": "1 1 -1 0 2", "ReplicaID": "-1 -1 1 -2 -3", "ClusterID": "x",
		"Records":            `batch(a) batch(k:b) batch(pid=$P1 epoch=0 seq=0 a) batch(pid=$P1 epoch=0 seq=0 txn=1 a) batch(a crc=bad) hex(00) hex() batch(ts=0 a) batch(control=1 a)`,
		"JoinGroup.Metadata": `sub(%a) hex() x`, "DeleteTopics.Topic": newTopics, "DeleteTopics.TopicNames": newTopics, "CreateTopics.Topic": newTopics,
		"StatesFilter": `Stable stable Empty nope ""`, "StateFilters": `Ongoing Empty nope ""`, "TypesFilter": `classic Consumer nope ""`,
	}
	for _, name := range []string{"TimeoutMillis", "MaxWaitMillis", "RebalanceTimeoutMillis"} {
		m[name] = "1000 1000 100 0 -1 5000"
	}
	for _, name := range []string{"Offset", "FetchOffset", "LogStartOffset"} {
		m[name] = "0 0 1 2 3 100 -1 -2 9223372036854775807"
	}
	for _, name := range []string{"MinBytes", "MaxBytes", "PartitionMaxBytes"} {
		m[name] = "1 100 1000000 0 -1"
	}
	for _, name := range []string{"Topic", "Topics", "TopicNames"} {
		m[name] = topics
	}
	for _, name := range []string{"Group", "Groups", "CoordinatorKey", "CoordinatorKeys"} {
		m[name] = groups
	}
	for _, name := range []string{"TransactionalID", "TransactionalIDs", "TransactionID"} {
		m[name] = ids
	}
	m["ConfigNames"] = configs
	return m
}()
