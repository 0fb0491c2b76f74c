package partition

import (
	"errors"
	"fmt"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/log"
	"oncelog/protocol"
)

// A recovery derives anew, after a crash, what follows from the batches that may not be durable, or whose consequences may not be: the producers' state,
// the indexes of aborted transactions, the leader epochs. It follows the log's own scan, so that nothing is read twice, and begins with the newest
// snapshot that the recovery point vouches for.
type recovery struct {
	p     *Partition
	point int64 // by the checkpoint
	table *idempotence.Table
	base  int64 // of the first segment; -1 as long as nothing has begun
	from  int64 // batches below this offset are in the table

	newest   int32 // leader epoch
	assigned epochs
	segments []recovered
	// pending: the segment that ended last has no snapshot at its end, as there are no producers. It needs one only if more follows.
	pending int64
}

// recovered is what was found in one segment.
type recovered struct {
	base    int64
	aborted controlmarkers.Index // of transactions whose marker is at or above from
}

func newRecovery(p *Partition, point int64) *recovery {
	return &recovery{p: p, point: point, base: -1, newest: -1, pending: -1}
}

// Begin restores the state that the scan begins with. Snapshots that are newer than that are made anew.
func (r *recovery) Begin(l *log.Log, others []string, from int64) error {
	p := r.p
	p.log = l
	p.mu.snapshots = offsetsOf(others, extSnapshot)
	base := floorBase(l, from)
	if next := r.point + 1; next > base {
		whole, err := r.whole(next, slices.Contains(offsetsOf(others, extWindow), next))
		if err == nil && !whole {
			err = p.dropSnapshot(next)
		}
		if err != nil {
			return err
		}
	}
	return r.begin(base, from)
}

// whole tells whether a snapshot right behind the recovery point may be used. It is durable if the recovery point was moved there with it (Advance), but not if a stop
// left the recovery point and a roll followed: then its window file may be missing, which says nothing else by itself.
func (r *recovery) whole(offset int64, window bool) (bool, error) {
	if window || !slices.Contains(r.p.mu.snapshots, offset) {
		return true, nil
	}
	st, err := r.p.shared.fsys.Stat(r.p.path(offset, extSnapshot))
	if err != nil {
		return false, err
	}
	return st.Size() <= idempotence.EmptySnapshotSize, nil // without producers there is no window file
}

// floorBase is the base of the segment that an offset lies in.
func floorBase(l *log.Log, offset int64) int64 {
	base := l.First()
	for _, s := range l.Segments() {
		if s.Base <= offset {
			base = s.Base
		}
	}
	return base
}

func (r *recovery) begin(base, from int64) error {
	p := r.p
	r.base, r.from = base, from
	// The batch that holds the recovery point is scanned, and durable: the snapshot behind it is good if the scan finds it to be.
	newest := from
	if from > base {
		newest = max(from, r.point+1)
	}
	for _, offset := range slices.Clone(p.mu.snapshots) {
		if offset > newest {
			if err := p.dropSnapshot(offset); err != nil {
				return err
			}
		}
	}
	r.table = idempotence.New()
	at, err := p.readSnapshot(r.table, newest)
	if err != nil {
		return err
	}
	if at < from {
		err = p.replay(r.table, at, from, nil)
	}
	r.from = max(at, from)
	p.mu.table = r.table
	return err
}

// Batch takes a batch in.
func (r *recovery) Batch(segment int64, h *protocol.BatchHeader, b protocol.Batch) error {
	if r.pending >= 0 {
		r.p.snapshotLocked(r.pending)
		r.pending = -1
	}
	n := len(r.segments)
	if n == 0 || r.segments[n-1].base != segment {
		r.segments = append(r.segments, recovered{base: segment})
		n++
	}
	if h.LeaderEpoch > r.newest {
		r.newest = h.LeaderEpoch
		r.assigned = append(r.assigned, epochStart{h.LeaderEpoch, h.BaseOffset})
	}
	if h.BaseOffset < r.from {
		return nil
	}
	if b == nil && h.Control() {
		return fmt.Errorf("control batch at %d has %d bytes: %w", h.BaseOffset, h.Size, log.ErrCorrupt)
	}
	aborted := &r.segments[n-1].aborted
	return replayBatch(r.table, b, h, r.p.shared.opened.UnixMilli(), func(ended idempotence.Ended) (err error) {
		if !ended.Commit {
			*aborted, err = aborted.Add(ended.Aborted)
		}
		return err
	})
}

// End leaves a snapshot at the end of each segment, as Kafka does.
func (r *recovery) End(s log.Segment) error {
	if n := len(r.segments); n == 0 || r.segments[n-1].base != s.Base {
		r.segments = append(r.segments, recovered{base: s.Base})
	}
	if producers, _ := r.table.Len(); producers > 0 && s.Next >= r.from {
		r.p.snapshotLocked(s.Next)
	} else {
		r.pending = s.Next
	}
	return nil
}

// finish makes what was derived the partition's. The log is open, and its directory's other files are taken over.
func (r *recovery) finish() error {
	p := r.p
	if r.from > p.log.End() || floorBase(p.log, r.base) != r.base {
		// What was vouched for is not there.
		if err := r.again(); err != nil {
			return err
		}
	}
	for _, s := range r.segments {
		var err error
		if s.base < r.from {
			err = p.resumeTxnIndex(s.base, r.from, s.aborted)
		} else {
			err = p.txns.replace(s.base, s.aborted)
		}
		if err != nil {
			return err
		}
	}
	e := *p.epochs.Load()
	for _, a := range r.assigned {
		if a.epoch > e.latest() {
			e = e.assign(a.epoch, a.start)
		}
	}
	e = e.trim(p.log.Start())
	p.epochs.Store(&e)
	if err := p.loadFloorLocked(r.table); err != nil {
		return err
	}
	p.readyLocked(r.table)
	return nil
}

// again derives the same from what is in the log now.
func (r *recovery) again() error {
	p := r.p
	base := floorBase(p.log, min(r.base, p.log.End()))
	*r = *newRecovery(p, 0)
	if err := r.begin(base, base); err != nil {
		return err
	}
	for _, s := range p.log.Segments() {
		if s.Base < base {
			continue
		}
		for b, err := range p.log.Batches(s.Base) {
			if err != nil {
				return err
			}
			h := b.Header()
			if h.BaseOffset >= s.Next {
				break
			}
			if err := r.Batch(s.Base, &h, b); err != nil {
				return err
			}
		}
		if err := r.End(s); err != nil {
			return err
		}
	}
	return nil
}

// resumeTxnIndex makes the index of aborted transactions of a segment that was scanned from an offset on: what it had below stays. If that can't be
// right the whole segment is read.
func (p *Partition) resumeTxnIndex(base, from int64, aborted controlmarkers.Index) error {
	err := p.txns.resume(base, from, aborted)
	if errors.Is(err, controlmarkers.ErrIndex) {
		return p.rebuildTxnIndexes([]int64{base})
	}
	return err
}

// offsetsOf gives the offsets of the files with an extension, ascending.
func offsetsOf(names []string, ext string) (offsets []int64) {
	for _, name := range names {
		if offset, e, ok := log.ParseFileName(name); ok && e == ext {
			offsets = append(offsets, offset)
		}
	}
	slices.Sort(offsets)
	return offsets
}
