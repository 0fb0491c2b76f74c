package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A replica lives in one log directory of its broker, by the directory's id. A new one gets the directory that has the fewest, and keeps it: if
// that directory cannot be used, the replica is offline, and a partition that has no other is without a leader until the directory is back.

type (
	// directoryRecord tells in which log directory a broker's replica of a partition lives.
	directoryRecord struct {
		topicID  [16]byte
		index    int32
		brokerID int32
		dir      [16]byte
	}

	// logDirsRecord tells which of its log directories a broker can use from now on.
	logDirsRecord struct {
		brokerID int32
		dirs     [][16]byte
	}
)

func (directoryRecord) kind() recordKind { return kindDirectory }
func (logDirsRecord) kind() recordKind   { return kindLogDirs }

func (r directoryRecord) encode(b []byte) []byte {
	b = append(b, r.topicID[:]...)
	b = binary.AppendVarint(b, int64(r.index))
	b = binary.AppendVarint(b, int64(r.brokerID))
	return append(b, r.dir[:]...)
}

func (r logDirsRecord) encode(b []byte) []byte {
	return appendIDs(binary.AppendVarint(b, int64(r.brokerID)), r.dirs)
}

// Directory is the log directory of a broker's replica, zero if it is not known.
func (p *Partition) Directory(brokerID int32) [16]byte {
	if i := slices.Index(p.Replicas, brokerID); i >= 0 && i < len(p.Directories) {
		return p.Directories[i]
	}
	return [16]byte{}
}

// usable tells whether a broker can use a directory of its own.
func (b *Broker) usable(dir [16]byte) bool {
	return dir == [16]byte{} || len(b.LogDirs) == 0 || slices.Contains(b.LogDirs, dir)
}

// Offline tells whether a broker's replica of a partition lies in a log directory that the broker cannot use.
func (im *Image) Offline(p *Partition, brokerID int32) bool {
	b := im.Broker(brokerID)
	return b != nil && !b.usable(p.Directory(brokerID))
}

// settle gives a partition the leader that it can have after a change of its broker's directories: none while its replica is offline.
func (p *Partition) settle(b *Broker) {
	usable := b.usable(p.Directory(b.ID))
	switch {
	case p.Leader == b.ID && !usable:
		p.Leader = -1
	case p.Leader < 0 && usable && slices.Contains(p.ISR, b.ID):
		p.Leader = b.ID
	default:
		return
	}
	p.LeaderEpoch++
	p.PartitionEpoch++
}

// concerns tells the partitions whose leader may change with a broker.
func (b *Broker) concerns(p *Partition) bool {
	return p.Leader == b.ID || p.Leader < 0 && slices.Contains(p.ISR, b.ID)
}

func (e *edit) replayDirectory(rec directoryRecord) error {
	v, ok := e.ids.Get(rec.topicID[:])
	if !ok {
		return fmt.Errorf("%w: a directory for unknown topic id %x", errCorrupt, rec.topicID)
	}
	t := *v.(*Topic)
	if rec.index < 0 || int(rec.index) >= len(t.Partitions) {
		return fmt.Errorf("%w: a directory for partition %d of %s, which has %d", errCorrupt, rec.index, t.Name, len(t.Partitions))
	}
	t.Partitions = slices.Clone(t.Partitions)
	p := &t.Partitions[rec.index]
	i := slices.Index(p.Replicas, rec.brokerID)
	if i < 0 {
		return fmt.Errorf("%w: a directory for %s-%d on broker %d, which has no replica of it", errCorrupt, t.Name, rec.index, rec.brokerID)
	}
	directories := make([][16]byte, len(p.Replicas))
	copy(directories, p.Directories)
	directories[i] = rec.dir
	p.Directories = directories
	p.PartitionEpoch++
	if b := e.broker(rec.brokerID); b != nil {
		p.settle(b)
	}
	e.put(&t)
	return nil
}

func (e *edit) replayLogDirs(rec logDirsRecord) error {
	old := e.broker(rec.brokerID)
	if old == nil {
		return fmt.Errorf("%w: log directories of unknown broker %d", errCorrupt, rec.brokerID)
	}
	b := *old
	b.LogDirs = rec.dirs
	e.im.brokers = slices.Clone(e.im.brokers)
	e.im.brokers[slices.Index(e.im.brokers, old)] = &b
	e.changePartitions(b.concerns, func(p *Partition) { p.settle(&b) })
	return nil
}

// broker is the broker of that id as the edit has it.
func (e *edit) broker(id int32) *Broker { return e.im.Broker(id) }

// Placement is in which directory a broker has found, or put, a replica.
type Placement struct {
	TopicID   [16]byte
	Index     int32
	Directory [16]byte
}

// AssignDirectories tells in which of a broker's directories replicas are. Partitions that are gone, or have no replica there, are left out.
func (c *Controller) AssignDirectories(ctx context.Context, brokerID int32, placements []Placement) error {
	placements = slices.Clone(placements)
	return c.do(ctx, func(d *decider) []record { return d.assignDirectories(brokerID, placements) })
}

func (d *decider) assignDirectories(brokerID int32, placements []Placement) (records []record) {
	for _, a := range placements {
		t := d.im.TopicByID(a.TopicID)
		if t == nil || a.Index < 0 || int(a.Index) >= len(t.Partitions) {
			continue
		}
		p := &t.Partitions[a.Index]
		if slices.Contains(p.Replicas, brokerID) && p.Directory(brokerID) != a.Directory {
			records = append(records, directoryRecord{a.TopicID, a.Index, brokerID, a.Directory})
		}
	}
	return records
}

// SetLogDirs tells which log directories a broker can use.
func (c *Controller) SetLogDirs(ctx context.Context, brokerID int32, brokerEpoch int64, dirs [][16]byte) error {
	dirs = slices.Clone(dirs)
	var refusal error
	err := c.do(ctx, func(d *decider) (records []record) {
		records, refusal = d.setLogDirs(brokerID, brokerEpoch, dirs)
		return records
	})
	if err == nil {
		err = refusal
	}
	return err
}

func (d *decider) setLogDirs(brokerID int32, brokerEpoch int64, dirs [][16]byte) ([]record, error) {
	b := d.im.Broker(brokerID)
	switch {
	case b == nil:
		return nil, kerr.BrokerIDNotRegistered
	case b.Epoch != brokerEpoch:
		return nil, kerr.StaleBrokerEpoch
	case len(dirs) == 0:
		return nil, reject(kerr.InvalidRequest, "Broker %d has no log directory left", brokerID)
	case slices.Equal(b.LogDirs, dirs):
		return nil, nil
	}
	return []record{logDirsRecord{brokerID, dirs}}, nil
}

// directoryFor chooses the directory of a new replica: of those that the broker can use, the first that has the fewest.
func (d *decider) directoryFor(b *Broker) [16]byte {
	if len(b.LogDirs) == 0 {
		return [16]byte{}
	}
	if len(b.LogDirs) > 1 && d.inDirectory == nil {
		d.inDirectory = map[[16]byte]int{}
		for t := range d.im.Topics() {
			for i := range t.Partitions {
				for _, dir := range t.Partitions[i].Directories {
					d.inDirectory[dir]++
				}
			}
		}
	}
	best := b.LogDirs[0]
	for _, dir := range b.LogDirs {
		if d.inDirectory[dir] < d.inDirectory[best] {
			best = dir
		}
	}
	if len(b.LogDirs) > 1 {
		d.inDirectory[best]++
	}
	return best
}
