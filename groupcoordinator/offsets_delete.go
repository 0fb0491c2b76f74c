package groupcoordinator

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// OffsetDelete removes committed offsets of topics that the group isn't subscribed to; the answer is a
// *kmsg.OffsetDeleteResponse.
func (m *Machine) OffsetDelete(to coordinator.Token, r *kmsg.OffsetDeleteRequest) coordinator.Output {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = r.Version
	if err := m.checkOffsetDelete(r.Group); err != nil {
		resp.ErrorCode = err.Code
		return to.Reply(resp)
	}
	g := m.groups[r.Group]
	out := to.Reply(resp)
	for i := range r.Topics {
		topic := r.Topics[i].Topic
		answer := kmsg.NewOffsetDeleteResponseTopic()
		answer.Topic = topic
		subscribed := g.subscribedTo(topic)
		for j := range r.Topics[i].Partitions {
			tp := topicPartition{topic, r.Topics[i].Partitions[j].Partition}
			row := kmsg.NewOffsetDeleteResponseTopicPartition()
			row.Partition = tp.partition
			if subscribed {
				row.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if g.has(tp) {
				out.Batch.Records = append(out.Batch.Records, offsetTombstone(g.id, tp.topic, tp.partition))
			}
			answer.Partitions = append(answer.Partitions, row)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	m.metrics.deleted(len(out.Batch.Records))
	return out
}

func (m *Machine) checkOffsetDelete(id string) *kerr.Error {
	if id == "" {
		return kerr.InvalidGroupID
	}
	g := m.groups[id]
	switch {
	case g == nil || g.kind == kindShare:
		return kerr.GroupIDNotFound
	case g.kind != kindClassic:
		return kerr.NonEmptyGroup
	case g.state != stateEmpty && g.protocolType != consumerProtocol:
		return kerr.NonEmptyGroup
	}
	return nil
}

// has tells whether anything is committed or pending for a partition.
func (g *group) has(tp topicPartition) bool {
	_, ok := g.offsets[tp.topic][tp.partition]
	return ok || g.hasPending(tp)
}

// offsetTombstones removes all offsets of a group, or those of one topic.
func (g *group) offsetTombstones(wanted func(topic string) bool) []coordinator.KeyValue {
	all := map[topicPartition]struct{}{}
	for topic, partitions := range g.offsets {
		if wanted(topic) {
			for p := range partitions {
				all[topicPartition{topic, p}] = struct{}{}
			}
		}
	}
	for _, offsets := range g.pending {
		for tp := range offsets {
			if wanted(tp.topic) {
				all[tp] = struct{}{}
			}
		}
	}
	tps := make([]topicPartition, 0, len(all))
	for tp := range all {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, compareTopicPartitions)
	records := make([]coordinator.KeyValue, len(tps))
	for i, tp := range tps {
		records[i] = offsetTombstone(g.id, tp.topic, tp.partition)
	}
	return records
}

// DeleteTopic removes all offsets of a topic that is deleted, in every group; the answer is nil.
func (m *Machine) DeleteTopic(to coordinator.Token, topic string) coordinator.Output {
	var records []coordinator.KeyValue
	for _, id := range m.groupIDs() {
		records = append(records, m.groups[id].offsetTombstones(func(t string) bool { return t == topic })...)
	}
	m.metrics.deleted(len(records))
	return inBatches(records, to, nil)
}

// inBatches appends records in as many batches as it takes, and then gives the answer.
func inBatches(records []coordinator.KeyValue, to coordinator.Token, answer any) coordinator.Output {
	n, size := 0, 0
	for n < len(records) && size < batchBytesMax {
		size += recordSize(records[n])
		n++
	}
	out := coordinator.Output{Batch: coordinator.Batch{Records: records[:n]}}
	if n == len(records) {
		out.Replies = []coordinator.Reply{{To: to, Value: answer}}
		return out
	}
	out.Next = []coordinator.Step{func(time.Time) coordinator.Output { return inBatches(records[n:], to, answer) }}
	out.Failed = func(err error) []coordinator.Reply { return []coordinator.Reply{{To: to, Err: err}} }
	return out
}

// armSweep lets the next look for expired offsets come, unless it is on its way.
func (m *Machine) armSweep(now time.Time) {
	if !m.sweep.running() {
		m.timers.start(&m.sweep, millis(now)+m.settings.RetentionCheckMillis)
	}
}

// expireOffsets removes the offsets whose retention time is over, and groups that have nothing left.
func (m *Machine) expireOffsets(now time.Time, out *coordinator.Output) {
	room, offsets := batchBytesMax, 0
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		before := len(out.Batch.Records)
		all := g.expire(millis(now), m.settings.RetentionMillis, &room, out)
		offsets += len(out.Batch.Records) - before
		if all && g.removable() {
			tombstone := groupTombstone(id)
			out.Batch.Records = append(out.Batch.Records, tombstone)
			room -= recordSize(tombstone)
			m.log.Info("removing a group without offsets", "group", id)
		}
		if room <= 0 {
			m.timers.start(&m.sweep, millis(now)) // the rest of them directly after these
			break
		}
	}
	m.metrics.expired(offsets)
	if len(m.groups) > 0 {
		m.armSweep(now)
	}
}

// expire appends a tombstone for each offset of the group that has expired, as long as there is room for them in the
// batch, and tells whether nothing is left then.
func (g *group) expire(nowMillis, retentionMillis int64, room *int, out *coordinator.Output) bool {
	if len(g.offsets) == 0 {
		return len(g.pending) == 0
	}
	since, ok := g.expiryBase()
	if !ok {
		return false
	}
	all := len(g.pending) == 0
	for _, topic := range sortedKeys(g.offsets) {
		if g.subscribedTo(topic) {
			all = false
			continue
		}
		for _, p := range sortedKeys(g.offsets[topic]) {
			c := g.offsets[topic][p]
			if *room <= 0 || !c.expired(nowMillis, retentionMillis, since) || g.hasPending(topicPartition{topic, p}) {
				all = false
				continue
			}
			tombstone := offsetTombstone(g.id, topic, p)
			out.Batch.Records = append(out.Batch.Records, tombstone)
			*room -= recordSize(tombstone)
		}
	}
	return all
}

// expiryBase is from when on the retention time of the group's offsets counts: from the time it gives, or if that is
// noTimestamp from each commit. Not ok means that nothing expires now (KIP-211).
func (g *group) expiryBase() (since int64, ok bool) {
	switch {
	case g.kind != kindClassic:
		return 0, false
	case g.protocolType == "":
		return noTimestamp, true
	case g.state == stateEmpty:
		return g.since, true
	case g.state == stateStable && g.protocolType == consumerProtocol && g.subscriptionKnown:
		return noTimestamp, true
	default:
		return 0, false
	}
}

func (c *commit) expired(nowMillis, retentionMillis, since int64) bool {
	if c.expireTime != noTimestamp {
		return nowMillis >= c.expireTime
	}
	if since == noTimestamp {
		since = c.commitTime
	}
	return nowMillis-since >= retentionMillis
}

// removable tells whether a group that has no offsets may go: nobody is in it or about to be.
func (g *group) removable() bool {
	return g.kind == kindClassic && g.state == stateEmpty && len(g.pendingJoin) == 0
}

func compareTopicPartitions(a, b topicPartition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}
