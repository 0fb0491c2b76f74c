package groupcoordinator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/controlmarkers"
	"oncelog/coordinator"
)

// putOffset makes c the committed offset of a partition. The topic may alias a record.
func (g *group) putOffset(topic string, partition int32, c commit) {
	partitions := g.offsets[topic]
	if partitions == nil {
		if g.offsets == nil {
			g.offsets = map[string]map[int32]commit{}
		}
		partitions = map[int32]commit{}
		g.offsets[strings.Clone(topic)] = partitions
	}
	partitions[partition] = c
}

// removeOffset removes what is committed and what is pending for a partition.
func (m *Machine) removeOffset(g *group, topic string, partition int32) {
	if partitions := g.offsets[topic]; partitions != nil {
		delete(partitions, partition)
		if len(partitions) == 0 {
			delete(g.offsets, topic)
		}
	}
	for producer, offsets := range g.pending {
		delete(offsets, topicPartition{topic, partition})
		if len(offsets) == 0 {
			m.closePending(g, producer)
		}
	}
}

// addPending keeps c until the producer's marker.
func (m *Machine) addPending(g *group, producer int64, tp topicPartition, c commit) {
	offsets := g.pending[producer]
	if offsets == nil {
		offsets = map[topicPartition]*commit{}
		if g.pending == nil {
			g.pending = map[int64]map[topicPartition]*commit{}
		}
		g.pending[producer] = offsets
		groups := m.open[producer]
		if groups == nil {
			groups = map[*group]struct{}{}
			m.open[producer] = groups
		}
		groups[g] = struct{}{}
	}
	offsets[tp] = &c
}

// closePending drops what a producer's transaction holds in a group.
func (m *Machine) closePending(g *group, producer int64) {
	delete(g.pending, producer)
	delete(m.open[producer], g)
	if len(m.open[producer]) == 0 {
		delete(m.open, producer)
	}
}

// endTransaction applies or drops all that a producer has pending. A pending offset whose record lies before that of
// the committed one is older than it, and yields.
func (m *Machine) endTransaction(producer int64, committed bool) {
	for g := range m.open[producer] {
		if committed {
			for tp, c := range g.pending[producer] {
				if old, ok := g.offsets[tp.topic][tp.partition]; !ok || c.recordOffset > old.recordOffset {
					g.putOffset(tp.topic, tp.partition, *c)
				}
			}
		}
		m.closePending(g, producer)
	}
}

// hasPending tells whether any open transaction holds an offset for a partition.
func (g *group) hasPending(tp topicPartition) bool {
	for _, offsets := range g.pending {
		if _, ok := offsets[tp]; ok {
			return true
		}
	}
	return false
}

// OffsetCommit commits offsets; the answer is a *kmsg.OffsetCommitResponse. Each topic of r has its name and its id,
// and exists.
func (m *Machine) OffsetCommit(now time.Time, to coordinator.Token, r *kmsg.OffsetCommitRequest) coordinator.Output {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = r.Version
	out := to.Reply(resp)
	fault := m.checkCommit(now, r)

	c := commit{commitTime: millis(now), expireTime: noTimestamp}
	if r.RetentionTimeMillis != -1 && r.Version >= 2 && r.Version <= 4 {
		c.expireTime = c.commitTime + r.RetentionTimeMillis
	}
	size, count := 0, 0
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			size += commitSizeMax(r.Group, r.Topics[i].Topic, value(r.Topics[i].Partitions[j].Metadata))
			count++
		}
	}
	buffer := make([]byte, 0, size)
	out.Batch.Records = make([]coordinator.KeyValue, 0, count)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(r.Topics))
	for i := range r.Topics {
		t, answer := &r.Topics[i], &resp.Topics[i]
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		answer.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, row := &t.Partitions[j], &answer.Partitions[j]
			row.Partition = p.Partition
			switch {
			case fault != nil:
				row.ErrorCode = fault.Code
			case m.tooLong(p.Metadata):
				row.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			default:
				c.offset, c.leaderEpoch, c.metadata, c.topicID = p.Offset, p.LeaderEpoch, value(p.Metadata), t.TopicID
				var record coordinator.KeyValue
				buffer, record = appendCommit(buffer, r.Group, t.Topic, p.Partition, &c)
				out.Batch.Records = append(out.Batch.Records, record)
			}
		}
	}
	m.noteCommits(now, len(out.Batch.Records))
	return out
}

// checkCommit is whether the sender of a commit may commit for the group now. A commit of a member is also a sign of
// its life.
func (m *Machine) checkCommit(now time.Time, r *kmsg.OffsetCommitRequest) *kerr.Error {
	g := m.groups[r.Group]
	if g == nil {
		switch {
		case len(r.Group) > stringBytesMax:
			return kerr.InvalidGroupID
		case r.Generation < 0:
			return nil // the commit itself makes a group without members
		case r.Version >= 9:
			return kerr.GroupIDNotFound
		default:
			return kerr.IllegalGeneration
		}
	}
	if err := g.foreign(); err != nil {
		return err
	}
	if r.Generation < 0 && g.state == stateEmpty {
		return nil
	}
	if r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil {
		return kerr.UnknownMemberID
	}
	if err := g.checkMember(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	if g.state == stateCompletingRebalance {
		return kerr.RebalanceInProgress
	}
	m.touch(now, g.members[r.MemberID])
	return nil
}

// foreign is the refusal of commits to a group of a kind whose members can't be checked here.
func (g *group) foreign() *kerr.Error {
	switch g.kind {
	case kindClassic:
		return nil
	case kindShare:
		return kerr.GroupIDNotFound
	default:
		return kerr.UnknownMemberID
	}
}

// tooLong tells whether the metadata of a commit is longer than allowed. Kafka counts what Java calls its length:
// UTF-16 units.
func (m *Machine) tooLong(metadata *string) bool {
	text, most := value(metadata), int(m.settings.MetadataMaxBytes)
	if len(text) <= most {
		return false
	}
	units := 0
	for _, r := range text {
		units += max(utf16.RuneLen(r), 1)
	}
	return units > most
}

// noteCommits counts commits, and sees to it that they expire one day.
func (m *Machine) noteCommits(now time.Time, n int) {
	if n > 0 {
		m.metrics.committed(n)
		m.armSweep(now)
	}
}

// TxnOffsetCommit commits offsets within a transaction; the answer is a *kmsg.TxnOffsetCommitResponse. Each topic of r
// has its name and its id, and exists, and the transaction coordinator has agreed; guard is what the log wants to see
// of that.
func (m *Machine) TxnOffsetCommit(now time.Time, to coordinator.Token, r *kmsg.TxnOffsetCommitRequest, guard any) coordinator.Output {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	resp.Version = r.Version
	out := to.Reply(resp)
	fault := m.checkTxnCommit(r)
	c := commit{commitTime: millis(now), expireTime: noTimestamp}
	for i := range r.Topics {
		t := &r.Topics[i]
		answer := kmsg.NewTxnOffsetCommitResponseTopic()
		answer.Topic, answer.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := &t.Partitions[j]
			row := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			row.Partition = p.Partition
			switch {
			case fault != nil:
				row.ErrorCode = fault.Code
			case m.tooLong(p.Metadata):
				row.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			default:
				c.offset, c.leaderEpoch, c.metadata, c.topicID = p.Offset, p.LeaderEpoch, value(p.Metadata), t.TopicID
				_, record := appendCommit(nil, r.Group, t.Topic, p.Partition, &c)
				out.Batch.Records = append(out.Batch.Records, record)
			}
			answer.Partitions = append(answer.Partitions, row)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	if len(out.Batch.Records) > 0 {
		out.Batch.Transactional = true
		out.Batch.ProducerID, out.Batch.ProducerEpoch = r.ProducerID, r.ProducerEpoch
		out.Batch.Guard = guard
	}
	m.noteCommits(now, len(out.Batch.Records))
	return out
}

// checkTxnCommit is whether the sender may commit for the group within its transaction. Unlike a plain commit it is
// accepted from a sender that names no member, in any state, and while the group waits for its assignment.
func (m *Machine) checkTxnCommit(r *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	g := m.groups[r.Group]
	anonymous := r.Version < 3 || r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil
	if g == nil {
		switch {
		case len(r.Group) > stringBytesMax:
			return kerr.InvalidGroupID
		case r.Version < 3 || r.Generation < 0:
			return nil
		case r.Version >= 6:
			return kerr.GroupIDNotFound
		default:
			return kerr.IllegalGeneration
		}
	}
	if anonymous || g.kind == kindClassic && r.Generation < 0 && g.state == stateEmpty {
		return nil
	}
	if err := g.foreign(); err != nil {
		return err
	}
	if err := g.checkMember(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	return nil
}

// Marker is what ends a producer's transaction on this partition.
type Marker struct {
	controlmarkers.Marker
	ProducerID         int64
	ProducerEpoch      int16
	TransactionVersion int16
}

// WriteMarker writes a marker into the partition; the answer is nil. The offsets that the transaction holds here are
// applied or dropped when the marker is replayed.
func (m *Machine) WriteMarker(_ time.Time, to coordinator.Token, k Marker) coordinator.Output {
	out := to.Reply(nil)
	out.Batch = coordinator.Batch{
		Control:            true,
		Marker:             k.Marker,
		ProducerID:         k.ProducerID,
		ProducerEpoch:      k.ProducerEpoch,
		TransactionVersion: k.TransactionVersion,
	}
	return out
}

// OffsetFetch reads committed offsets of one group; the answer is a *kmsg.OffsetFetchResponseGroup. Topics that are nil
// mean all. The topics asked for have their names; an id among them comes back. Like every answer it waits for the
// writes before it.
func (m *Machine) OffsetFetch(to coordinator.Token, r *kmsg.OffsetFetchRequestGroup, requireStable bool) coordinator.Output {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = r.Group
	g := m.groups[r.Group]
	if g != nil && g.kind == kindShare {
		g = nil
	}
	if r.Topics == nil {
		if g != nil {
			resp.Topics = g.fetchAll(requireStable)
		}
		return to.Reply(&resp)
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(r.Topics))
	for i := range r.Topics {
		t := &resp.Topics[i]
		t.Topic, t.TopicID = r.Topics[i].Topic, r.Topics[i].TopicID
		t.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(r.Topics[i].Partitions))
		for j, p := range r.Topics[i].Partitions {
			t.Partitions[j] = g.fetch(topicPartition{t.Topic, p}, requireStable)
		}
	}
	return to.Reply(&resp)
}

func (g *group) fetchAll(requireStable bool) []kmsg.OffsetFetchResponseGroupTopic {
	topics := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(g.offsets))
	for _, name := range sortedKeys(g.offsets) {
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic = name
		for _, p := range sortedKeys(g.offsets[name]) {
			t.Partitions = append(t.Partitions, g.fetch(topicPartition{name, p}, requireStable))
		}
		topics = append(topics, t)
	}
	return topics
}

// fetch is the row of one partition; g is nil if there is no such group.
func (g *group) fetch(tp topicPartition, requireStable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	row := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	row.Partition = tp.partition
	row.Offset, row.LeaderEpoch = -1, -1
	row.Metadata = kmsg.StringPtr("")
	if g == nil {
		return row
	}
	if requireStable && g.hasPending(tp) {
		row.ErrorCode = kerr.UnstableOffsetCommit.Code
		return row
	}
	if c, ok := g.offsets[tp.topic][tp.partition]; ok {
		row.Offset, row.LeaderEpoch = c.offset, c.leaderEpoch
		if c.metadata != "" {
			row.Metadata = kmsg.StringPtr(c.metadata)
		}
	}
	return row
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
