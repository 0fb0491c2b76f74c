package groupcoordinator

import (
	"log/slog"
	"time"
)

// Settings are the broker settings that the machine obeys, named as Kafka names them.
type Settings struct {
	SessionTimeoutMinMillis     int32 // group.min.session.timeout.ms
	SessionTimeoutMaxMillis     int32 // group.max.session.timeout.ms
	MaxSize                     int32 // group.max.size: members per group
	InitialRebalanceDelayMillis int32 // group.initial.rebalance.delay.ms
	MetadataMaxBytes            int32 // offset.metadata.max.bytes: per committed offset
	RetentionMillis             int64 // offsets.retention.minutes, in milliseconds
	RetentionCheckMillis        int64 // offsets.retention.check.interval.ms
}

// DefaultSettings are Kafka's defaults.
func DefaultSettings() Settings {
	return Settings{
		SessionTimeoutMinMillis:     6000,
		SessionTimeoutMaxMillis:     1800000,
		MaxSize:                     1<<31 - 1,
		InitialRebalanceDelayMillis: 3000,
		MetadataMaxBytes:            4096,
		RetentionMillis:             10080 * 60 * 1000,
		RetentionCheckMillis:        600000,
	}
}

// Options of a Machine. NewUUID is needed.
type Options struct {
	Settings Settings
	// NewUUID makes the end of a member id: a random UUID in its usual form of 36 characters.
	NewUUID func() string
	Logger  *slog.Logger // nil: slog.Default()
	Metrics *Metrics     // nil: none
}

const (
	// newMemberJoinTimeoutMillis is how long the join of a new member may be parked. Its client has no member id yet
	// and can't send heartbeats, so that its session says nothing about it.
	newMemberJoinTimeoutMillis = 5 * 60 * 1000

	// batchBytesMax is where a long row of tombstones is cut into several batches, so that each fits into any sensible
	// max.message.bytes of the topic.
	batchBytesMax = 512 << 10
)

func millis(now time.Time) int64 { return now.UnixMilli() }
