package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// dynamicSettings are the settings of a broker that have effect while it runs: a value that is not the default, and where it shows.
var dynamicSettings = map[string]struct {
	value string
	shows func(*Server) any
	want  any
}{
	"compression.gzip.level":                    {"7", topicSetting(func(t *config.Topic) any { return t.CompressionGzipLevel }), 7},
	"compression.lz4.level":                     {"3", topicSetting(func(t *config.Topic) any { return t.CompressionLZ4Level }), 3},
	"compression.type":                          {"zstd", topicSetting(func(t *config.Topic) any { return t.CompressionType }), "zstd"},
	"compression.zstd.level":                    {"9", topicSetting(func(t *config.Topic) any { return t.CompressionZstdLevel }), 9},
	"log.cleaner.backoff.ms":                    {"20000", brokerSetting("log.cleaner.backoff.ms"), "20000"},
	"log.cleaner.dedupe.buffer.size":            {"200000000", brokerSetting("log.cleaner.dedupe.buffer.size"), "200000000"},
	"log.cleaner.delete.retention.ms":           {"11", topicSetting(func(t *config.Topic) any { return t.DeleteRetentionMs }), int64(11)},
	"log.cleaner.io.buffer.load.factor":         {"0.8", brokerSetting("log.cleaner.io.buffer.load.factor"), "0.8"},
	"log.cleaner.io.buffer.size":                {"600000", brokerSetting("log.cleaner.io.buffer.size"), "600000"},
	"log.cleaner.io.max.bytes.per.second":       {"1000000", brokerSetting("log.cleaner.io.max.bytes.per.second"), "1000000.0"},
	"log.cleaner.min.cleanable.ratio":           {"0.3", topicSetting(func(t *config.Topic) any { return t.MinCleanableDirtyRatio }), 0.3},
	"log.cleaner.min.compaction.lag.ms":         {"12", topicSetting(func(t *config.Topic) any { return t.MinCompactionLagMs }), int64(12)},
	"log.cleaner.threads":                       {"2", brokerSetting("log.cleaner.threads"), "2"},
	"log.cleaner.max.compaction.lag.ms":         {"99999", topicSetting(func(t *config.Topic) any { return t.MaxCompactionLagMs }), int64(99999)},
	"log.cleanup.policy":                        {"compact,delete", topicSetting(func(t *config.Topic) any { return t.CleanupCompact && t.CleanupDelete }), true},
	"log.flush.interval.messages":               {"5", topicSetting(func(t *config.Topic) any { return t.FlushMessages }), int64(5)},
	"log.flush.interval.ms":                     {"6", topicSetting(func(t *config.Topic) any { return t.FlushMs }), int64(6)},
	"log.index.interval.bytes":                  {"77", topicSetting(func(t *config.Topic) any { return t.IndexIntervalBytes }), int32(77)},
	"log.index.size.max.bytes":                  {"888", topicSetting(func(t *config.Topic) any { return t.SegmentIndexBytes }), int32(888)},
	"log.message.timestamp.after.max.ms":        {"1", topicSetting(func(t *config.Topic) any { return t.TimestampAfterMaxMs }), int64(1)},
	"log.message.timestamp.before.max.ms":       {"2", topicSetting(func(t *config.Topic) any { return t.TimestampBeforeMaxMs }), int64(2)},
	"log.message.timestamp.type":                {"LogAppendTime", topicSetting(func(t *config.Topic) any { return t.LogAppendTime }), true},
	"log.retention.bytes":                       {"3", topicSetting(func(t *config.Topic) any { return t.RetentionBytes }), int64(3)},
	"log.retention.ms":                          {"4", topicSetting(func(t *config.Topic) any { return t.RetentionMs }), int64(4)},
	"log.roll.jitter.ms":                        {"5", topicSetting(func(t *config.Topic) any { return t.SegmentJitterMs }), int64(5)},
	"log.roll.ms":                               {"6", topicSetting(func(t *config.Topic) any { return t.SegmentMs }), int64(6)},
	"log.segment.bytes":                         {"2000000", topicSetting(func(t *config.Topic) any { return t.SegmentBytes }), int32(2000000)},
	"log.segment.delete.delay.ms":               {"8", topicSetting(func(t *config.Topic) any { return t.FileDeleteDelayMs }), int64(8)},
	"max.connections":                           {"1000", func(s *Server) any { s.conns.mu.Lock(); defer s.conns.mu.Unlock(); return s.conns.max }, 1000},
	"max.connections.per.ip":                    {"100", func(s *Server) any { s.conns.mu.Lock(); defer s.conns.mu.Unlock(); return s.conns.maxPerIP }, 100},
	"max.connections.per.ip.overrides":          {"10.0.0.1:7", func(s *Server) any { s.conns.mu.Lock(); defer s.conns.mu.Unlock(); return s.conns.maxOfIP["10.0.0.1"] }, 7},
	"max.decompressed.message.bytes":            {"9000", topicSetting(func(t *config.Topic) any { return t.MaxDecompressedMessageBytes }), int32(9000)},
	"message.max.bytes":                         {"9999", topicSetting(func(t *config.Topic) any { return t.MaxMessageBytes }), int32(9999)},
	"min.insync.replicas":                       {"2", topicSetting(func(t *config.Topic) any { return t.MinInsyncReplicas }), int32(2)},
	"producer.id.expiration.ms":                 {"12345", brokerSetting("producer.id.expiration.ms"), "12345"},
	"num.recovery.threads.per.data.dir":         {"3", brokerSetting("num.recovery.threads.per.data.dir"), "3"},
	"transaction.partition.verification.enable": {"false", brokerSetting("transaction.partition.verification.enable"), "false"},
}

// Bound at the start: the metadata refuses them.
var staticHere = []string{"listeners", "listener.security.protocol.map"}

func topicSetting(field func(*config.Topic) any) func(*Server) any {
	return func(s *Server) any { return field(s.topicConfig("t")) }
}

func brokerSetting(key string) func(*Server) any {
	return func(s *Server) any { return s.cfg().String(key) }
}

// Each setting that can be changed at run time and that the broker honours is looked at here, set for all brokers, and for this one, which goes first.
func TestDynamicSettingsTakeEffect(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	for _, def := range config.BrokerDefs() {
		d, ok := dynamicSettings[def.Name]
		honoured := def.Scope > config.StaticOnly && def.Use == config.Used && !slices.Contains(staticHere, def.Name)
		if honoured && !ok {
			t.Errorf("%s can be changed at run time, and nobody looks whether it is", def.Name)
		}
		if !ok {
			continue
		}
		if before := d.shows(s); before == d.want {
			t.Errorf("%s is %v before it is set", def.Name, before)
		}
		if got := c.alter(kmsg.ConfigResourceTypeBroker, "", def.Name+"="+d.value); got != "0 null" {
			t.Errorf("%s: %s", def.Name, got)
		}
		if got := d.shows(s); got != d.want {
			t.Errorf("%s: %v, want %v", def.Name, got, d.want)
		}
		if def.Name == "min.insync.replicas" { // only for the whole cluster
			continue
		}
		for _, name := range []string{"", "1"} {
			c.alter(kmsg.ConfigResourceTypeBroker, name, "!"+def.Name)
		}
		if got := d.shows(s); got == d.want {
			t.Errorf("%s is still %v when it is removed", def.Name, got)
		}
	}
	c.alter(kmsg.ConfigResourceTypeBroker, "", "log.retention.ms=1000")
	c.alter(kmsg.ConfigResourceTypeBroker, "1", "log.retention.ms=2000")
	if got := s.topicConfig("t").RetentionMs; got != 2000 {
		t.Errorf("retention %d: this broker's own setting goes first", got)
	}
	for _, key := range staticHere {
		if got := c.alter(kmsg.ConfigResourceTypeBroker, "1", key+"=PLAINTEXT:PLAINTEXT"); !strings.HasPrefix(got, "42 Cannot update these configs dynamically") {
			t.Errorf("%s: %s", key, got)
		}
	}
}

// What was set at run time holds after a restart.
func TestDynamicSettingsOutliveTheBroker(t *testing.T) {
	dir := t.TempDir()
	for life := range 2 {
		t.Run(fmt.Sprint(life), func(t *testing.T) {
			s := startServerWith(t, Options{Config: testConfig(t, dir)})
			c := dial(t, s)
			if life == 0 {
				c.alter(kmsg.ConfigResourceTypeBroker, "", "message.max.bytes=7777", "max.connections.per.ip=50")
			}
			if got := s.topicConfig("any").MaxMessageBytes; got != 7777 {
				t.Errorf("message.max.bytes %d", got)
			}
			if got := dynamicSettings["max.connections.per.ip"].shows(s); got != 50 {
				t.Errorf("max.connections.per.ip %v", got)
			}
		})
	}
}
