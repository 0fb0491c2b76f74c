package groupcoordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// The types of record keys, and the versions of their values that are written.
const (
	keyOffsetCommitLegacy = 0 // Kafka 0.8; the same key
	keyOffsetCommit       = 1
	keyGroupMetadata      = 2

	// The records that say of a group that it is of another kind.
	keyConsumerGroupMetadata = 3
	keyShareGroupMetadata    = 11
	keyStreamsGroupMetadata  = 17

	offsetCommitVersion          = 4
	offsetCommitVersionRetention = 1 // the only one with an expiry of its own
	groupMetadataVersion         = 3

	noTimestamp = -1
)

// errRecord is a record that can't be understood.
var errRecord = errors.New("bad record in the offsets topic")

// commit is one committed offset, or one that waits for its transaction's marker.
type commit struct {
	offset       int64
	recordOffset int64 // of the record that said so: where in the log
	commitTime   int64 // milliseconds since 1970
	expireTime   int64 // milliseconds since 1970; noTimestamp leaves it to the retention time
	leaderEpoch  int32 // -1 is unknown
	metadata     string
	topicID      [16]byte
}

// storedGroup is the value of a group's last GroupMetadata record. It is immutable, and shares the members' bytes with
// the soft state.
type storedGroup struct {
	protocolType string
	generation   int32
	protocol     *string
	leader       *string
	since        int64 // milliseconds since 1970 when the group came into its state, or noTimestamp
	members      []storedMember
}

type storedMember struct {
	id                     string
	instanceID             *string
	clientID               string
	clientHost             string
	rebalanceTimeoutMillis int32
	sessionTimeoutMillis   int32
	subscription           []byte
	assignment             []byte
}

// keyType gives the type of a record's key.
func keyType(key []byte) (int16, error) {
	if len(key) < 2 {
		return 0, fmt.Errorf("key of %d bytes: %w", len(key), errRecord)
	}
	return int16(binary.BigEndian.Uint16(key)), nil
}

// decodeOffsetKey reads a key of type 0 or 1. The strings alias the key.
func decodeOffsetKey(key []byte) (kmsg.OffsetCommitKey, error) {
	var k kmsg.OffsetCommitKey
	if err := k.UnsafeReadFrom(key); err != nil {
		return k, fmt.Errorf("offset commit key: %w: %w", err, errRecord)
	}
	return k, nil
}

// decodeCommit reads the value of an offset commit. The result aliases nothing.
func decodeCommit(value []byte, recordOffset int64) (commit, error) {
	var v kmsg.OffsetCommitValue
	if err := v.UnsafeReadFrom(value); err != nil {
		return commit{}, fmt.Errorf("offset commit value: %w: %w", err, errRecord)
	}
	if v.Version < 0 || v.Version > offsetCommitVersion {
		return commit{}, fmt.Errorf("offset commit value of version %d: %w", v.Version, errRecord)
	}
	c := commit{
		offset:       v.Offset,
		recordOffset: recordOffset,
		commitTime:   v.CommitTimestamp,
		expireTime:   noTimestamp,
		leaderEpoch:  -1,
		metadata:     strings.Clone(v.Metadata),
		topicID:      v.TopicID,
	}
	if v.Version >= 3 {
		c.leaderEpoch = v.LeaderEpoch
	}
	if v.Version == offsetCommitVersionRetention {
		c.expireTime = v.ExpireTimestamp
	}
	return c, nil
}

// appendCommit appends key and value of an offset commit to dst and gives them as parts of it.
func appendCommit(dst []byte, group, topic string, partition int32, c *commit) ([]byte, coordinator.KeyValue) {
	start := len(dst)
	dst = appendOffsetKey(dst, group, topic, partition)
	middle := len(dst)
	v := kmsg.OffsetCommitValue{
		Version:         offsetCommitVersion,
		Offset:          c.offset,
		LeaderEpoch:     c.leaderEpoch,
		Metadata:        c.metadata,
		CommitTimestamp: c.commitTime,
		TopicID:         c.topicID,
	}
	if c.expireTime != noTimestamp {
		v.Version, v.ExpireTimestamp = offsetCommitVersionRetention, c.expireTime
	}
	dst = v.AppendTo(dst)
	return dst, coordinator.KeyValue{Key: dst[start:middle:middle], Value: dst[middle:len(dst):len(dst)]}
}

// commitSizeMax is at least what appendCommit appends for a commit of these names and metadata.
func commitSizeMax(group, topic, metadata string) int {
	return 64 + len(group) + len(topic) + len(metadata)
}

func appendOffsetKey(dst []byte, group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: keyOffsetCommit, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(dst)
}

// offsetTombstone removes the offset of a partition, and whatever transactions hold for it.
func offsetTombstone(group, topic string, partition int32) coordinator.KeyValue {
	return coordinator.KeyValue{Key: appendOffsetKey(nil, group, topic, partition)}
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyGroupMetadata, Group: group}
	return k.AppendTo(nil)
}

// groupTombstone removes a group.
func groupTombstone(group string) coordinator.KeyValue {
	return coordinator.KeyValue{Key: groupKey(group)}
}

// record is the GroupMetadata record of a group.
func (s *storedGroup) record(group string) coordinator.KeyValue {
	v := kmsg.GroupMetadataValue{
		Version:               groupMetadataVersion,
		ProtocolType:          s.protocolType,
		Generation:            s.generation,
		Protocol:              s.protocol,
		Leader:                s.leader,
		CurrentStateTimestamp: s.since,
		Members:               make([]kmsg.GroupMetadataValueMember, len(s.members)),
	}
	for i, m := range s.members {
		v.Members[i] = kmsg.GroupMetadataValueMember{
			MemberID:               m.id,
			InstanceID:             m.instanceID,
			ClientID:               m.clientID,
			ClientHost:             m.clientHost,
			RebalanceTimeoutMillis: m.rebalanceTimeoutMillis,
			SessionTimeoutMillis:   m.sessionTimeoutMillis,
			Subscription:           m.subscription,
			Assignment:             m.assignment,
		}
	}
	return coordinator.KeyValue{Key: groupKey(group), Value: v.AppendTo(nil)}
}

// decodeGroup reads the value of a GroupMetadata record. The result aliases nothing.
func decodeGroup(value []byte) (*storedGroup, error) {
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("group metadata value: %w: %w", err, errRecord)
	}
	if v.Version < 0 || v.Version > groupMetadataVersion+1 {
		return nil, fmt.Errorf("group metadata value of version %d: %w", v.Version, errRecord)
	}
	s := &storedGroup{
		protocolType: v.ProtocolType,
		generation:   v.Generation,
		protocol:     v.Protocol,
		leader:       v.Leader,
		since:        noTimestamp,
		members:      make([]storedMember, len(v.Members)),
	}
	if v.Version >= 2 {
		s.since = v.CurrentStateTimestamp
	}
	for i, m := range v.Members {
		rebalanceTimeout := m.RebalanceTimeoutMillis
		if v.Version < 1 || rebalanceTimeout == -1 {
			rebalanceTimeout = m.SessionTimeoutMillis
		}
		s.members[i] = storedMember{
			id:                     m.MemberID,
			instanceID:             m.InstanceID,
			clientID:               m.ClientID,
			clientHost:             m.ClientHost,
			rebalanceTimeoutMillis: rebalanceTimeout,
			sessionTimeoutMillis:   m.SessionTimeoutMillis,
			subscription:           cloneBytes(m.Subscription),
			assignment:             cloneBytes(m.Assignment),
		}
	}
	return s, nil
}

// cloneBytes copies b; empty is never nil, since neither a subscription nor an assignment can be null.
func cloneBytes(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// groupOfKey reads the group id with which the key of every type begins. It aliases the key.
func groupOfKey(key []byte) (string, error) {
	var k kmsg.GroupMetadataKey
	if err := k.UnsafeReadFrom(key); err != nil {
		return "", fmt.Errorf("group of a key: %w: %w", err, errRecord)
	}
	return k.Group, nil
}

// subscribedTopics reads the topics of a consumer's subscription, as far as they can be read: the blob comes from a
// client, and a version that is not known yet begins like the newest that is. The strings alias the blob.
func subscribedTopics(subscription []byte) (topics []string, ok bool) {
	var v kmsg.ConsumerMemberMetadata
	if err := v.UnsafeReadFrom(subscription); err != nil || v.Version < 0 {
		return nil, false
	}
	return v.Topics, true
}
