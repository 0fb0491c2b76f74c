package inspect

import (
	"fmt"
	"maps"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/log"
	"oncelog/partition"
	"oncelog/protocol"
)

// fold is what follows from the batches up to a point: the state of the producers. It begins with the first segment, or with the snapshot
// there, so it may lack what retention took.
type fold struct {
	table  *idempotence.Table
	from   int64 // the first offset that is in it
	seeded bool  // it began with a snapshot, and knows what was before
}

// complete tells whether the fold knows everything.
func (f *fold) complete() bool { return f.seeded || f.from == 0 }

// seed begins the fold at the first segment.
func (p *partitionCheck) seed(base int64) {
	p.fold.from = base
	entries, windows, ok := p.readSnapshot(base)
	if ok {
		p.fold.table.Restore(entries, windows, 0)
		p.fold.seeded = true
	}
}

// take takes a batch into the fold.
func (s *segmentCheck) take(b protocol.Batch, h *protocol.BatchHeader) error {
	if h.ProducerID < 0 {
		return nil
	}
	s.maxProducer = max(s.maxProducer, h.ProducerID)
	if !h.Control() {
		s.fold.table.Apply(h, 0)
		return nil
	}
	m, ok, err := controlmarkers.Decode(b)
	if err != nil || !ok {
		return err
	}
	if !m.Commit {
		s.markers[h.BaseOffset] = h.ProducerID
	}
	if e, ended := s.fold.table.ApplyMarker(h, m, 0); ended && !e.Commit {
		s.aborted, err = s.aborted.Add(e.Aborted)
	}
	return err
}

// readSnapshot reads a snapshot and its windows; ok is false if there is none, or it can't be read.
func (p *partitionCheck) readSnapshot(offset int64) (entries []idempotence.Entry, windows []idempotence.Window, ok bool) {
	if !slices.Contains(p.snapshots, offset) {
		return nil, nil, false
	}
	name := log.FileName(offset, log.ExtSnapshot)
	data := p.file(name)
	entries, err := idempotence.ParseSnapshot(data)
	for _, e := range entries {
		p.maxProducer = max(p.maxProducer, e.ProducerID)
	}
	if err != nil {
		p.says(Warning, name, "%v: the next start goes without it", err)
		return nil, nil, false
	}
	if _, there := p.files[offset][partition.ExtWindow]; there {
		name := log.FileName(offset, partition.ExtWindow)
		if windows, err = idempotence.ParseWindows(p.file(name), data); err != nil {
			p.says(Warning, name, "%v: the next start goes without it", err)
		}
	}
	return entries, windows, true
}

// compareSnapshot compares the snapshot at an offset, if there is one, with the fold up to there.
func (p *partitionCheck) compareSnapshot(offset int64) {
	entries, _, ok := p.readSnapshot(offset)
	if !ok {
		return
	}
	name := log.FileName(offset, log.ExtSnapshot)
	inLog := map[int64]idempotence.Entry{}
	for e := range p.fold.table.Entries() {
		inLog[e.ProducerID] = e
	}
	for _, e := range entries {
		f, known := inLog[e.ProducerID]
		delete(inLog, e.ProducerID)
		if !known {
			if e.LastOffset >= p.fold.from && !p.compacted {
				p.says(Error, name, "producer %d, whose last batch ends with offset %d, isn't in the log", e.ProducerID, e.LastOffset)
			}
			continue
		}
		if what := p.differs(e, f); what != "" {
			p.says(Error, name, "producer %d: %s", e.ProducerID, what)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(inLog)) { // it may have expired, but not with a transaction open
		if f := inLog[id]; f.TxnFirstOffset >= p.start && !p.compacted {
			p.says(Error, name, "producer %d, which has a transaction open since offset %d, is missing", id, f.TxnFirstOffset)
		}
	}
}

// differs compares a producer in a snapshot with the fold, as far as the fold knows.
func (p *partitionCheck) differs(e, f idempotence.Entry) string {
	switch {
	case p.compacted && e.LastOffset != f.LastOffset: // its last batch was removed after it had expired
		return ""
	case e.LastOffset >= 0 && e.LastOffset < p.fold.from, f.TxnFirstOffset != e.TxnFirstOffset && !p.fold.complete() && e.TxnFirstOffset < p.fold.from:
		return ""
	case e.Epoch != f.Epoch:
		return fmt.Sprintf("epoch %d, by the log %d", e.Epoch, f.Epoch)
	case e.LastSequence != f.LastSequence || e.LastOffset != f.LastOffset || e.OffsetDelta != f.OffsetDelta:
		return fmt.Sprintf("last sequence %d at offset %d, by the log %d at %d", e.LastSequence, e.LastOffset, f.LastSequence, f.LastOffset)
	case e.TxnFirstOffset != f.TxnFirstOffset && !p.compacted:
		return fmt.Sprintf("transaction open since %d, by the log %d", e.TxnFirstOffset, f.TxnFirstOffset)
	case e.CoordinatorEpoch != f.CoordinatorEpoch && (p.fold.complete() || f.CoordinatorEpoch >= 0) && !p.compacted:
		return fmt.Sprintf("coordinator epoch %d, by the log %d", e.CoordinatorEpoch, f.CoordinatorEpoch)
	}
	return ""
}

// checkSnapshots compares the snapshot at the end of the log, and tells of those that belong to no segment.
func (p *partitionCheck) checkSnapshots(bases []int64) {
	for _, offset := range p.snapshots {
		name := log.FileName(offset, log.ExtSnapshot)
		switch {
		case slices.Contains(bases, offset), p.within[offset]: // compared on the way
		case offset == p.end && !p.damaged:
			p.compareSnapshot(offset)
		case offset > p.end && !p.damaged && !p.o.Live:
			p.says(Warning, name, "lies behind the end of the log, %d: the next start removes it", p.end)
		default:
			p.says(Note, name, "no segment begins there")
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(p.files)) {
		if _, ok := p.files[offset][partition.ExtWindow]; ok && !slices.Contains(p.snapshots, offset) {
			p.says(Note, log.FileName(offset, partition.ExtWindow), "its snapshot is missing")
		}
	}
}

// compareTxnIndex compares the index of aborted transactions of a segment with the markers in it.
func (s *segmentCheck) compareTxnIndex() {
	name := log.FileName(s.base, log.ExtTxnIndex)
	var entries controlmarkers.Index
	if _, ok := s.files[s.base][log.ExtTxnIndex]; ok {
		var err error
		if entries, err = controlmarkers.ParseIndex(s.file(name), s.base); err != nil {
			s.says(Warning, name, "%v: it is made anew when it is needed", err)
			return
		}
	}
	byMarker := map[int64]controlmarkers.Aborted{}
	for _, a := range s.aborted {
		byMarker[a.Last] = a
	}
	for _, a := range entries {
		f, known := byMarker[a.Last]
		delete(byMarker, a.Last)
		if what := s.txnDiffers(a, f, known); what != "" {
			s.says(Error, name, "producer %d, marker at %d: %s", a.ProducerID, a.Last, what)
		}
	}
	if s.o.Live && s.last() {
		return
	}
	for _, marker := range slices.Sorted(maps.Keys(byMarker)) {
		a := byMarker[marker]
		s.says(Error, name, "the transaction of producer %d from %d on, aborted at %d, isn't in it: readers of committed records would see it",
			a.ProducerID, a.First, a.Last)
	}
}

// txnDiffers compares an entry of the index with the fold's, if it has one.
func (s *segmentCheck) txnDiffers(a, f controlmarkers.Aborted, known bool) string {
	producer, marked := s.markers[a.Last]
	switch {
	case s.o.Live && s.last() && a.Last >= s.expected:
		return ""
	case !marked && s.compacted:
		return ""
	case !marked || producer != a.ProducerID:
		return "there is no abort marker of that producer"
	case !known && (a.First < s.fold.from || s.compacted):
		return ""
	case !known:
		return fmt.Sprintf("no transaction of that producer was open, the index says from %d on", a.First)
	case f.First != a.First && !(s.compacted && a.First < f.First):
		return fmt.Sprintf("it began at %d, by the index at %d", f.First, a.First)
	case f.LastStable != a.LastStable && s.fold.complete() && !s.compacted:
		return fmt.Sprintf("the last stable offset was %d then, by the index %d", f.LastStable, a.LastStable)
	}
	return ""
}
