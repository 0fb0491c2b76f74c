package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

func describeConfigs(c *client, version int16, resources ...kmsg.DescribeConfigsRequestResource) []kmsg.DescribeConfigsResponseResource {
	c.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation, req.Resources = version, true, version >= 3, resources
	return do[*kmsg.DescribeConfigsResponse](c, req).Resources
}

func resource(kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsRequestResource {
	return kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name, ConfigNames: keys}
}

// drawn shows a setting: name=value/source type flags [synonyms].
func drawn(c kmsg.DescribeConfigsResponseResourceConfig) string {
	text := fmt.Sprintf("%s=%s/%d %v", c.Name, orNull(c.Value), c.Source, c.ConfigType)
	if c.ReadOnly {
		text += " R"
	}
	if c.IsSensitive {
		text += " S"
	}
	for _, s := range c.ConfigSynonyms {
		text += fmt.Sprintf(" [%s=%s/%d]", s.Name, orNull(s.Value), s.Source)
	}
	return text
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func wantConfigs(t *testing.T, r kmsg.DescribeConfigsResponseResource, want ...string) {
	t.Helper()
	if r.ErrorCode != 0 || r.ErrorMessage == nil || *r.ErrorMessage != "" {
		t.Fatalf("%v %q: error %d %s", r.ResourceType, r.ResourceName, r.ErrorCode, orNull(r.ErrorMessage))
	}
	var got []string
	for _, c := range r.Configs {
		got = append(got, drawn(c))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v %q: got\n%s\nwant\n%s", r.ResourceType, r.ResourceName, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// alterConfig sets one setting, or removes it if the value is "-".
func alterConfig(c *client, kind kmsg.ConfigResourceType, name, key, value string) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	o := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	o.Name, o.Value = key, &value
	if value == "-" {
		o.Op, o.Value = kmsg.IncrementalAlterConfigOpDelete, nil
	}
	r.Configs = append(r.Configs, o)
	req.Resources = append(req.Resources, r)
	if row := do[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources[0]; row.ErrorCode != 0 {
		c.t.Fatalf("alter %s of %q: error %d %s", key, name, row.ErrorCode, orNull(row.ErrorMessage))
	}
}

const (
	ofTopic   = kmsg.ConfigResourceTypeTopic
	ofBroker  = kmsg.ConfigResourceTypeBroker
	ofLogger  = kmsg.ConfigResourceTypeBrokerLogger
	ofGroup   = kmsg.ConfigResourceTypeGroupConfig
	ofMetrics = kmsg.ConfigResourceTypeClientMetrics
)

// Where a value comes from, and under which names, as Apache Kafka tells it.
func TestDescribeConfigsSources(t *testing.T) {
	c := dial(t, startServer(t, "log.roll.hours=24"))
	c.createTopic("t", 1, "retention.ms=123456", "cleanup.policy=compact,delete", "min.insync.replicas=1", "compression.type=zstd")
	keys := []string{"retention.ms", "cleanup.policy", "min.insync.replicas", "segment.bytes", "nope", "flush.ms", "segment.ms", "compression.type", "retention.ms"}
	wantConfigs(t, describeConfigs(c, 4, resource(ofTopic, "t", keys...))[0],
		"cleanup.policy=compact,delete/1 LIST [cleanup.policy=compact,delete/1] [log.cleanup.policy=delete/5]",
		"compression.type=zstd/1 STRING [compression.type=zstd/1] [compression.type=producer/5]",
		"flush.ms=9223372036854775807/5 LONG",
		"min.insync.replicas=1/1 INT [min.insync.replicas=1/1] [min.insync.replicas=1/3] [min.insync.replicas=1/5]",
		"retention.ms=123456/1 LONG [retention.ms=123456/1]",
		"segment.bytes=1073741824/5 INT [log.segment.bytes=1073741824/5]",
		"segment.ms=86400000/5 LONG")

	alterConfig(c, ofBroker, "1", "log.cleaner.backoff.ms", "14000")
	alterConfig(c, ofBroker, "", "log.cleaner.backoff.ms", "13000")
	alterConfig(c, ofBroker, "", "log.retention.ms", "700000000")
	alterConfig(c, ofGroup, "g", "consumer.session.timeout.ms", "50000")
	alterConfig(c, ofMetrics, "m", "interval.ms", "10000")
	got := describeConfigs(c, 4,
		resource(ofBroker, "1", "log.cleaner.backoff.ms", "log.retention.ms", "log.retention.hours", "log.retention.minutes", "node.id", "broker.id", "ssl.key.password", "log.dirs"),
		resource(ofBroker, ""),
		resource(ofTopic, "t", "retention.ms"),
		resource(ofGroup, "g", "consumer.session.timeout.ms", "share.auto.offset.reset", "consumer.heartbeat.interval.ms"),
		resource(ofMetrics, "m"),
		resource(ofMetrics, "other", "match"),
		resource(ofLogger, "1", "root"))
	for i := range got[0].Configs {
		if cfg := &got[0].Configs[i]; cfg.Name == "log.dirs" { // differs with each test
			cfg.Value, cfg.ConfigSynonyms[0].Value = nil, nil
		}
	}
	wantConfigs(t, got[0],
		"broker.id=1/4 INT R [broker.id=1/4] [broker.id=-1/5]",
		"log.cleaner.backoff.ms=14000/2 LONG [log.cleaner.backoff.ms=14000/2] [log.cleaner.backoff.ms=13000/3] [log.cleaner.backoff.ms=15000/5]",
		"log.dirs=null/4 LIST R [log.dirs=null/4]",
		"log.retention.hours=168/5 INT R [log.retention.hours=168/5]",
		"log.retention.minutes=null/5 INT R",
		"log.retention.ms=700000000/3 LONG [log.retention.ms=700000000/3] [log.retention.hours=168/5]",
		"node.id=1/4 INT R [node.id=1/4]",
		"ssl.key.password=null/5 PASSWORD S")
	wantConfigs(t, got[1],
		"log.cleaner.backoff.ms=13000/3 LONG [log.cleaner.backoff.ms=13000/3]",
		"log.retention.ms=700000000/3 LONG [log.retention.ms=700000000/3]",
		"min.insync.replicas=1/3 INT [min.insync.replicas=1/3]")
	wantConfigs(t, got[2], "retention.ms=123456/1 LONG [retention.ms=123456/1] [log.retention.ms=700000000/3] [log.retention.hours=168/5]")
	wantConfigs(t, got[3],
		"consumer.heartbeat.interval.ms=5000/5 INT [group.consumer.heartbeat.interval.ms=5000/5]",
		"consumer.session.timeout.ms=50000/8 INT [consumer.session.timeout.ms=50000/8] [group.consumer.session.timeout.ms=45000/5]",
		"share.auto.offset.reset=latest/5 STRING [share.auto.offset.reset=latest/5]")
	wantConfigs(t, got[4], "interval.ms=10000/7 INT [interval.ms=10000/7]", "match=/5 LIST", "metrics=/5 LIST")
	wantConfigs(t, got[5], "match=/5 LIST")
	wantConfigs(t, got[6], "root=INFO/6 UNKNOWN")
}

// Everything that the tables know is shown, with documentation, in each version.
func TestDescribeConfigsShowsAll(t *testing.T) {
	c := dial(t, startServer(t))
	c.createTopic("t", 1)
	for version := int16(1); version <= 4; version++ {
		for i, want := range [][]config.Def{config.BrokerDefs(), config.GroupDefs()} {
			r := describeConfigs(c, version, []kmsg.DescribeConfigsRequestResource{resource(ofBroker, "1"), resource(ofGroup, "g")}[i])[0]
			if len(r.Configs) != len(want) || len(want) == 0 {
				t.Fatalf("version %d: %v has %d settings, want %d", version, r.ResourceType, len(r.Configs), len(want))
			}
			for j, def := range want {
				got := r.Configs[j]
				if got.Name != def.Name || got.ReadOnly != def.ReadOnly || version >= 3 && (orNull(got.Documentation) != def.Doc || def.Doc == "") {
					t.Errorf("version %d: %s", version, drawn(got))
				}
			}
		}
	}
	r := describeConfigs(c, 4, resource(ofTopic, "t"))[0]
	for _, cfg := range r.Configs {
		if strings.HasPrefix(cfg.Name, "internal.") || orNull(cfg.Documentation) == "null" || cfg.Value == nil {
			t.Errorf("topic: %s", drawn(cfg))
		}
	}
	if len(r.Configs) != 37 {
		t.Errorf("a topic has %d settings, want 37", len(r.Configs))
	}
}

func TestDescribeConfigsErrors(t *testing.T) {
	c := dial(t, startServer(t))
	for _, test := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want string
	}{
		{ofTopic, "none", "3 "},
		{ofTopic, "", "17 Topic name is invalid: the empty string is not allowed"},
		{ofTopic, "bad/name", "17 Topic name is invalid: 'bad/name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{ofBroker, "2", "42 Unexpected broker id, expected 1 or empty string, but received 2"},
		{ofBroker, "x", "42 Broker id must be an integer, but it is: x"},
		{ofBroker, " 1", "42 Broker id must be an integer, but it is:  1"},
		{ofBroker, "+1", "0 "},
		{ofBroker, "01", "0 "},
		{ofLogger, "", "42 Broker id must not be empty"},
		{ofLogger, "2", "42 Unexpected broker id, expected 1 but received 2"},
		{ofLogger, "x", "42 Broker id must be an integer, but it is: x"},
		{ofGroup, "", "42 Group name must not be empty"},
		{ofMetrics, "", "42 Client metrics subscription name must not be empty"},
		{3, "x", "42 " + malformedRequest},
		{0, "x", "42 " + malformedRequest},
		{-1, "x", "42 " + malformedRequest},
	} {
		r := describeConfigs(c, 4, resource(test.kind, test.name, "node.id"), resource(ofBroker, ""))
		if got := fmt.Sprint(r[0].ErrorCode, " ", orNull(r[0].ErrorMessage)); got != test.want {
			t.Errorf("%d %q: got %s, want %s", test.kind, test.name, got, test.want)
		}
		if r[0].ResourceType != test.kind || r[0].ResourceName != test.name {
			t.Errorf("%d %q: answered as %d %q", test.kind, test.name, r[0].ResourceType, r[0].ResourceName)
		}
		if malformed := strings.HasSuffix(test.want, malformedRequest); malformed != (r[1].ErrorCode != 0) {
			t.Errorf("%d %q: the other resource has error %d", test.kind, test.name, r[1].ErrorCode)
		}
	}
}
