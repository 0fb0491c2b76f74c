package config

import "math"

// minIndexBytes is the least size of a segment's indexes: an entry of the time index. Kafka lets less pass and then does not start any more.
const minIndexBytes = 12

// Topic is the settings of one topic, resolved: its own ones upon those of the broker. Immutable.
type Topic struct {
	RetentionMs, RetentionBytes                  int64 // -1: no limit
	SegmentBytes                                 int32
	SegmentMs, SegmentJitterMs                   int64
	IndexIntervalBytes, SegmentIndexBytes        int32
	MaxMessageBytes, MaxDecompressedMessageBytes int32
	CompressionType                              string // producer, uncompressed, or a codec
	CompressionGzipLevel, CompressionLZ4Level    int
	CompressionZstdLevel                         int
	LogAppendTime                                bool
	TimestampBeforeMaxMs, TimestampAfterMaxMs    int64
	MinInsyncReplicas                            int32
	CleanupCompact, CleanupDelete                bool
	FlushMessages, FlushMs                       int64 // MaxInt64: never
	FileDeleteDelayMs, DeleteRetentionMs         int64
	MinCompactionLagMs, MaxCompactionLagMs       int64
	MinCleanableDirtyRatio                       float64
	Preallocate, UncleanLeaderElection           bool
}

// Topic resolves the settings of a topic with these overrides. Overrides that are not allowed or unknown change nothing.
func (b *Broker) Topic(overrides map[string]string) *Topic {
	if len(overrides) > 0 {
		return b.topic(overrides)
	}
	if b.plain.Load() == nil {
		b.plain.CompareAndSwap(nil, b.topic(nil))
	}
	return b.plain.Load()
}

func (b *Broker) topic(overrides map[string]string) *Topic {
	get := func(name string) value {
		v, _ := b.topicSetting(topicKeys().find(name), overrides)
		return v.value
	}
	t := &Topic{
		RetentionMs: get("retention.ms").i, RetentionBytes: get("retention.bytes").i,
		SegmentBytes: int32(get("segment.bytes").i), SegmentMs: get("segment.ms").i, SegmentJitterMs: get("segment.jitter.ms").i,
		IndexIntervalBytes: int32(get("index.interval.bytes").i), SegmentIndexBytes: max(int32(get("segment.index.bytes").i), minIndexBytes),
		MaxMessageBytes: int32(get("max.message.bytes").i), MaxDecompressedMessageBytes: int32(get("max.decompressed.message.bytes").i),
		CompressionType: get("compression.type").text, CompressionGzipLevel: int(get("compression.gzip.level").i),
		CompressionLZ4Level: int(get("compression.lz4.level").i), CompressionZstdLevel: int(get("compression.zstd.level").i),
		LogAppendTime:        get("message.timestamp.type").text == "LogAppendTime",
		TimestampBeforeMaxMs: get("message.timestamp.before.max.ms").i, TimestampAfterMaxMs: get("message.timestamp.after.max.ms").i,
		MinInsyncReplicas: int32(get("min.insync.replicas").i),
		FlushMessages:     get("flush.messages").i, FlushMs: get("flush.ms").i,
		FileDeleteDelayMs: get("file.delete.delay.ms").i, DeleteRetentionMs: get("delete.retention.ms").i,
		MinCompactionLagMs: get("min.compaction.lag.ms").i, MaxCompactionLagMs: get("max.compaction.lag.ms").i,
		MinCleanableDirtyRatio: get("min.cleanable.dirty.ratio").f,
		Preallocate:            get("preallocate").i != 0, UncleanLeaderElection: get("unclean.leader.election.enable").i != 0,
	}
	for _, policy := range get("cleanup.policy").list {
		t.CleanupCompact = t.CleanupCompact || policy == "compact"
		t.CleanupDelete = t.CleanupDelete || policy == "delete"
	}
	if v, null := b.topicSetting(topicKeys().find("internal.segment.bytes"), overrides); !null {
		t.SegmentBytes = max(int32(v.i), 1)
	}
	return t
}

// topicSetting returns the value of a topic's key that holds, and whether it is null.
func (b *Broker) topicSetting(d *Def, overrides map[string]string) (s setting, null bool) {
	if text, ok := overrides[d.Name]; ok {
		if v, err := d.parse(text); err == nil {
			return setting{value: v, source: DynamicTopic}, false
		}
	}
	if d.Broker != "" {
		return b.family(d.Broker), false
	}
	if d.NullDefault {
		return setting{null: true, source: Default}, true
	}
	v, err := d.parse(d.Default)
	if err != nil {
		panic(err) // the table contradicts itself; a test looks at every default
	}
	return setting{value: v, source: Default}, false
}

// unit is a key that says the same as another one in another unit.
type unit struct {
	name   string
	millis int64 // per unit
}

const minute, hour = 60_000, 3_600_000

// units are the keys that stand behind a key in milliseconds while it is null, the strongest first.
var units = map[string][]unit{
	"log.retention.ms":      {{"log.retention.minutes", minute}, {"log.retention.hours", hour}},
	"log.retention.minutes": {{"log.retention.hours", hour}},
	"log.roll.ms":           {{"log.roll.hours", hour}},
	"log.roll.jitter.ms":    {{"log.roll.jitter.hours", hour}},
	"log.flush.interval.ms": {{"log.flush.scheduler.interval.ms", 1}},
}

// family returns the value of a broker's key, in its unit, from the keys of other units where it is null.
func (b *Broker) family(name string) setting {
	s := *b.get(name)
	for _, u := range units[name] {
		if !s.null {
			break
		}
		s = *b.get(u.name)
		s.source = Default // as Kafka tells it
		if s.i > math.MaxInt64/u.millis {
			s.i = math.MaxInt64
		} else {
			s.i *= u.millis
		}
	}
	if name == "log.retention.ms" && s.i < 0 {
		s.i = -1
	}
	if brokerKeys().find(name).Type == Long {
		s.text = formatInt(s.i)
	}
	return s
}

// RetentionMs returns for how long records are kept by default, from whichever of the log.retention keys holds; -1 without limit.
func (b *Broker) RetentionMs() int64 { return b.family("log.retention.ms").i }
