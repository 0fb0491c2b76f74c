package groupcoordinator

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"oncelog/coordinator"
)

// Machine is the groups of one partition of __consumer_offsets. It is owned by its shard.
type Machine struct {
	partition, epoch int32
	settings         Settings
	newUUID          func() string
	log              *slog.Logger
	metrics          *Metrics

	// Hard state, written by Replay alone.
	groups map[string]*group
	// open has, per producer with an open transaction, the groups that it has pending offsets in.
	// Invariant: open[p] has g exactly if g.pending has p.
	open map[int64]map[*group]struct{}

	// Soft state.
	running bool // Recover was called: groups have soft state
	timers  timerHeap
	sweep   timer // looks for expired offsets; runs while there are groups
}

// New makes the empty machine of a partition that is led from epoch on.
func New(partition, epoch int32, o Options) *Machine {
	m := &Machine{
		partition: partition,
		epoch:     epoch,
		settings:  o.Settings,
		newUUID:   o.NewUUID,
		log:       o.Logger,
		metrics:   o.Metrics,
		groups:    map[string]*group{},
		open:      map[int64]map[*group]struct{}{},
	}
	if m.log == nil {
		m.log = slog.Default()
	}
	m.sweep.fire = m.expireOffsets
	return m
}

// kind is the protocol that a group's members speak.
type kind int8

const (
	kindClassic kind = iota
	kindConsumer
	kindShare
	kindStreams
)

// group is what one group id has. It exists from its first record on until its tombstone.
type group struct {
	id string

	// Hard state.
	kind    kind
	stored  *storedGroup                         // nil for a group that only ever committed offsets
	offsets map[string]map[int32]commit          // committed, by topic and partition
	pending map[int64]map[topicPartition]*commit // in open transactions, by producer id

	// Soft state of the classic protocol.
	classic
}

type topicPartition struct {
	topic     string
	partition int32
}

// Replay folds one record into the hard state.
func (m *Machine) Replay(offset int64, r coordinator.Record) error {
	if r.IsMarker {
		m.endTransaction(r.ProducerID, r.Marker.Commit)
		return nil
	}
	t, err := keyType(r.Key)
	if err != nil {
		return err
	}
	switch t {
	case keyOffsetCommitLegacy, keyOffsetCommit:
		return m.replayOffset(offset, r)
	case keyGroupMetadata:
		return m.replayGroup(r)
	case keyConsumerGroupMetadata:
		return m.replayKind(r, kindConsumer)
	case keyShareGroupMetadata:
		return m.replayKind(r, kindShare)
	case keyStreamsGroupMetadata:
		return m.replayKind(r, kindStreams)
	default:
		m.log.Debug("skipping a record of another kind of group", "partition", m.partition, "offset", offset, "type", t)
		return nil
	}
}

func (m *Machine) replayOffset(offset int64, r coordinator.Record) error {
	key, err := decodeOffsetKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		if g := m.groups[key.Group]; g != nil {
			m.removeOffset(g, key.Topic, key.Partition)
		}
		return nil
	}
	c, err := decodeCommit(r.Value, offset)
	if err != nil {
		return err
	}
	g := m.groups[key.Group]
	if g == nil {
		g = m.addGroup(strings.Clone(key.Group))
	}
	if r.Transactional {
		m.addPending(g, r.ProducerID, topicPartition{strings.Clone(key.Topic), key.Partition}, c)
	} else {
		g.putOffset(key.Topic, key.Partition, c)
	}
	return nil
}

func (m *Machine) replayGroup(r coordinator.Record) error {
	id, err := groupOfKey(r.Key)
	if err != nil {
		return err
	}
	g := m.groups[id]
	if r.Value == nil {
		if g != nil {
			g.stored = nil
			m.removeIfUnused(g)
		}
		return nil
	}
	stored, err := decodeGroup(r.Value)
	if err != nil {
		return err
	}
	if g == nil {
		g = m.addGroup(strings.Clone(id))
		g.since = stored.since
	}
	g.stored = stored
	return nil
}

// replayKind notes that a group is of a kind whose protocol is not spoken here, so that its id isn't given to a classic
// group.
func (m *Machine) replayKind(r coordinator.Record, k kind) error {
	id, err := groupOfKey(r.Key)
	if err != nil {
		return err
	}
	g := m.groups[id]
	switch {
	case r.Value != nil && g == nil:
		m.addGroup(strings.Clone(id)).kind = k
	case r.Value != nil:
		g.kind = k
	case g != nil && g.kind == k:
		g.kind = kindClassic
		m.removeIfUnused(g)
	}
	return nil
}

func (m *Machine) addGroup(id string) *group {
	g := &group{id: id}
	g.classic.since = noTimestamp
	m.groups[id] = g
	return g
}

// removeIfUnused removes a group that lost its group record, unless offsets are left of it.
func (m *Machine) removeIfUnused(g *group) {
	if g.stored != nil || g.kind != kindClassic || len(g.offsets) > 0 || len(g.pending) > 0 {
		return
	}
	m.stopTimers(g)
	delete(m.groups, g.id)
}

// Recover gives all groups their soft state after the load.
func (m *Machine) Recover(now time.Time) coordinator.Output {
	m.running = true
	var out coordinator.Output
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		if g.stored != nil {
			m.recoverClassic(g, now, &out)
		}
	}
	m.armSweep(now)
	return out
}

// Deadline is when Tick is wanted next.
func (m *Machine) Deadline() time.Time { return m.timers.next() }

// Tick fires the timers that are due.
func (m *Machine) Tick(now time.Time) coordinator.Output {
	var out coordinator.Output
	for size := 0; size < batchBytesMax; {
		t := m.timers.due(millis(now))
		if t == nil {
			break
		}
		before := len(out.Batch.Records)
		t.fire(now, &out)
		size += sizeOf(out.Batch.Records[before:])
	}
	return out
}

func sizeOf(records []coordinator.KeyValue) int {
	n := 0
	for _, r := range records {
		n += recordSize(r)
	}
	return n
}

// recordSize is at least what a record takes up in a batch.
func recordSize(r coordinator.KeyValue) int { return len(r.Key) + len(r.Value) + 16 }

// groupIDs gives the ids of all groups, ascending: what a machine does must not depend on the order of a map.
func (m *Machine) groupIDs() []string {
	return sortedKeys(m.groups)
}

// String names the machine in logs.
func (m *Machine) String() string { return fmt.Sprintf("__consumer_offsets-%d", m.partition) }
