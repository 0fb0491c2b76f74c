package config

import (
	"fmt"
	"math"
	"testing"
)

func TestTopicIsItsOwnUponTheBrokers(t *testing.T) {
	b := load(t, LoadOptions{})
	d := b.Topic(nil)
	want := Topic{
		RetentionMs: 604800000, RetentionBytes: -1, SegmentBytes: 1 << 30, SegmentMs: 604800000, IndexIntervalBytes: 4096, SegmentIndexBytes: 10485760,
		MaxMessageBytes: 1048588, MaxDecompressedMessageBytes: 2147483639, CompressionType: "producer", CompressionGzipLevel: -1, CompressionLZ4Level: 9,
		CompressionZstdLevel: 3, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3600000, MinInsyncReplicas: 1, CleanupDelete: true,
		FlushMessages: math.MaxInt64, FlushMs: math.MaxInt64, FileDeleteDelayMs: 60000, DeleteRetentionMs: 86400000, MaxCompactionLagMs: math.MaxInt64,
		MinCleanableDirtyRatio: 0.5,
	}
	if *d != want {
		t.Errorf("%+v\nwant %+v", *d, want)
	}
	b = load(t, LoadOptions{Set: []string{"message.max.bytes=5", "log.message.timestamp.type=LogAppendTime", "log.index.size.max.bytes=4", "min.insync.replicas=2", "log.preallocate=true"}})
	got := b.Topic(map[string]string{
		"max.message.bytes": "7", "cleanup.policy": "compact,delete", "retention.ms": "-1", "flush.messages": "bad", "internal.segment.bytes": "100", "nothing": "x",
		"compression.type": "zstd", "min.cleanable.dirty.ratio": "0.1",
	})
	if got.MaxMessageBytes != 7 || !got.LogAppendTime || !got.CleanupCompact || !got.CleanupDelete || got.RetentionMs != -1 || got.FlushMessages != math.MaxInt64 ||
		got.SegmentBytes != 100 || got.SegmentIndexBytes != 12 || got.MinInsyncReplicas != 2 || !got.Preallocate || got.CompressionType != "zstd" || got.MinCleanableDirtyRatio != 0.1 {
		t.Errorf("%+v", *got)
	}
}

func TestUnitsStandInForMilliseconds(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want [4]int64 // retention, roll, jitter, flush
	}{
		{nil, [4]int64{168 * hour, 168 * hour, 0, math.MaxInt64}},
		{[]string{"log.retention.hours=1", "log.roll.hours=2", "log.roll.jitter.hours=3", "log.flush.scheduler.interval.ms=4"}, [4]int64{hour, 2 * hour, 3 * hour, 4}},
		{[]string{"log.retention.hours=1", "log.retention.minutes=5", "log.roll.ms=6", "log.roll.jitter.ms=7", "log.flush.interval.ms=8", "log.flush.scheduler.interval.ms=4"}, [4]int64{5 * minute, 6, 7, 8}},
		{[]string{"log.retention.hours=1", "log.retention.minutes=5", "log.retention.ms=9"}, [4]int64{9, 168 * hour, 0, math.MaxInt64}},
		{[]string{"log.retention.hours=-1"}, [4]int64{-1, 168 * hour, 0, math.MaxInt64}},
		{[]string{"log.retention.ms=-7"}, [4]int64{-1, 168 * hour, 0, math.MaxInt64}},
	} {
		b := load(t, LoadOptions{Set: c.set})
		topic := b.Topic(nil)
		if got := [4]int64{topic.RetentionMs, topic.SegmentMs, topic.SegmentJitterMs, topic.FlushMs}; got != c.want || b.RetentionMs() != c.want[0] {
			t.Errorf("%v: %v, want %v", c.set, got, c.want)
		}
	}
}

func TestDynamicLayers(t *testing.T) {
	b := load(t, LoadOptions{Set: []string{"log.retention.bytes=1", "background.threads=11"}})
	d := b.WithDynamic(
		map[string]string{"log.retention.bytes": " 2 ", "message.max.bytes": "20", "num.partitions": "9", "listeners": "PLAINTEXT://:1", "nothing": "x", "log.segment.bytes": "bad"},
		map[string]string{"message.max.bytes": "30", "log.retention.ms": "40", "node.id": "8"},
	)
	for key, want := range map[string]string{"log.retention.bytes": "2", "message.max.bytes": "30", "num.partitions": "1", "listeners": "PLAINTEXT://127.0.0.1:9092",
		"log.segment.bytes": "1073741824", "log.retention.ms": "40", "node.id": "1", "background.threads": "11"} {
		if got, _ := d.Value(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if b.Int("log.retention.bytes") != 1 || d.Source("log.retention.bytes") != DynamicDefaultBroker || d.Source("message.max.bytes") != DynamicBroker ||
		d.Source("background.threads") != StaticBroker || d.Topic(nil).RetentionMs != 40 || d.Topic(nil).MaxMessageBytes != 30 || len(d.Listeners()) != 1 {
		t.Error("layers")
	}
	if again := d.WithDynamic(nil, nil); again.Int("message.max.bytes") != 1048588 {
		t.Error("layers stay that were replaced")
	}
}

// TestDescribeIsKafkas: values, sources and synonyms as Kafka 4.4 tells them.
func TestDescribeIsKafkas(t *testing.T) {
	b := load(t, LoadOptions{Set: []string{"log.retention.hours=1", "log.retention.minutes=30", "log.roll.ms=5000", "log.flush.scheduler.interval.ms=7000", "foo.bar=baz",
		"listener.name.plaintext.max.connections=77", "ssl.key.password=secret"}})
	d := b.WithDynamic(map[string]string{"log.retention.ms": "99000", "min.insync.replicas": "1"}, nil)
	topic := map[string]string{"retention.ms": "1000"}
	show := func(e Entry, ok bool) string {
		if !ok {
			return "none"
		}
		text := func(s string, null bool) string {
			if null {
				return "<null>"
			}
			return s
		}
		out := fmt.Sprintf("%s=%s %d", e.Def.Name, text(e.Value, e.Null), e.Source)
		for _, s := range e.Synonyms {
			out += fmt.Sprintf(" [%s=%s %d]", s.Name, text(s.Value, s.Null), s.Source)
		}
		return out
	}
	for _, c := range []struct{ got, want string }{
		{show(b.DescribeTopic("segment.jitter.ms", nil)), "segment.jitter.ms=0 5"},
		{show(b.DescribeTopic("flush.ms", nil)), "flush.ms=7000 5"},
		{show(b.DescribeTopic("retention.ms", nil)), "retention.ms=1800000 5"},
		{show(b.DescribeTopic("segment.ms", nil)), "segment.ms=5000 4 [log.roll.ms=5000 4] [log.roll.hours=168 5]"},
		{show(b.DescribeTopic("remote.storage.enable", nil)), "remote.storage.enable=false 5"},
		{show(b.DescribeTopic("compression.type", nil)), "compression.type=producer 5 [compression.type=producer 5]"},
		{show(b.DescribeTopic("nothing", nil)), "none"},
		{show(b.Describe("listener.name.plaintext.max.connections")), "listener.name.plaintext.max.connections=77 4 [listener.name.plaintext.max.connections=77 4] [max.connections=2147483647 5]"},
		{show(b.Describe("foo.bar")), "foo.bar=<null> 4 [foo.bar=<null> 4]"},
		{show(b.Describe("ssl.key.password")), "ssl.key.password=<null> 4 [ssl.key.password=<null> 4]"},
		{show(b.Describe("log.flush.interval.ms")), "log.flush.interval.ms=<null> 5"},
		{show(b.Describe("log.retention.hours")), "log.retention.hours=1 4 [log.retention.hours=1 4] [log.retention.hours=168 5]"},
		{show(b.Describe("log.retention.minutes")), "log.retention.minutes=30 4 [log.retention.minutes=30 4] [log.retention.hours=1 4] [log.retention.hours=168 5]"},
		{show(b.Describe("log.retention.ms")), "log.retention.ms=<null> 5"},
		{show(b.Describe("log.roll.ms")), "log.roll.ms=5000 4 [log.roll.ms=5000 4] [log.roll.hours=168 5]"},
		{show(b.Describe("log.flush.scheduler.interval.ms")), "log.flush.scheduler.interval.ms=7000 4 [log.flush.scheduler.interval.ms=7000 4] [log.flush.scheduler.interval.ms=9223372036854775807 5]"},
		{show(b.Describe("broker.id")), "broker.id=1 4 [broker.id=1 4] [broker.id=-1 5]"},
		{show(b.Describe("nothing")), "none"},
		{show(d.DescribeTopic("retention.ms", nil)), "retention.ms=99000 3 [log.retention.ms=99000 3] [log.retention.minutes=30 4] [log.retention.hours=1 4] [log.retention.hours=168 5]"},
		{show(b.DescribeTopic("retention.ms", topic)), "retention.ms=1000 1 [retention.ms=1000 1]"},
		{show(d.DescribeTopic("min.insync.replicas", nil)), "min.insync.replicas=1 3 [min.insync.replicas=1 3] [min.insync.replicas=1 5]"},
		{show(b.DescribeGroup("streams.assignor.name", nil)), "streams.assignor.name=sticky 5 [group.streams.assignors=sticky 5]"},
		{show(b.DescribeGroup("consumer.session.timeout.ms", map[string]string{"consumer.session.timeout.ms": "50000"})),
			"consumer.session.timeout.ms=50000 8 [consumer.session.timeout.ms=50000 8] [group.consumer.session.timeout.ms=45000 5]"},
		{show(b.DescribeGroup("share.renew.acknowledge.enable", nil)), "share.renew.acknowledge.enable=true 5 [share.renew.acknowledge.enable=true 5]"},
		{show(b.DescribeGroup("nothing", nil)), "none"},
	} {
		if c.got != c.want {
			t.Errorf("%s\nwant %s", c.got, c.want)
		}
	}
	if extra := b.Extra(); len(extra) != 2 || extra[0] != "foo.bar" {
		t.Error(extra)
	}
}

func TestUnknownNamesAreBugs(t *testing.T) {
	b := load(t, LoadOptions{})
	for name, f := range map[string]func(){"unknown": func() { b.Int("nothing") }, "type": func() { b.Int("listeners") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error(name, "passed")
				}
			}()
			f()
		}()
	}
	if b.Bool("auto.create.topics.enable") != true || b.Double("log.cleaner.min.cleanable.ratio") != 0.5 || b.String("broker.rack") != "" {
		t.Error("values")
	}
	if v, null := b.Value("broker.rack"); v != "" || !null {
		t.Error(v, null)
	}
}

func BenchmarkInt(b *testing.B) {
	c, _, err := Load(LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Int("message.max.bytes")
	}
}

func BenchmarkTopic(b *testing.B) {
	c, _, err := Load(LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Topic(map[string]string{"retention.ms": "5"})
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, _, err := Load(LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
