package inspect

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/log"
	"oncelog/protocol"
)

// segmentCheck is the check of one segment. Batches go by once; the indexes, which ascend as they do, go along.
type segmentCheck struct {
	*partitionCheck
	base, nextBase int64 // nextBase is -1 for the last segment
	name           string

	expected int64 // the least offset that the next batch may have
	index    indexWalk
	times    timeWalk
	markers  map[int64]int64 // abort markers: offset -> producer
	aborted  controlmarkers.Index
	largest  int64 // timestamp
}

func (p *partitionCheck) checkSegment(base, nextBase int64) {
	p.counts.segments++
	s := &segmentCheck{partitionCheck: p, base: base, nextBase: nextBase, name: log.FileName(base, log.ExtLog), expected: base, largest: -1, markers: map[int64]int64{}}
	p.begin(base)
	s.loadIndexes()
	err := s.scan()
	if err != nil {
		p.says(Error, s.name, "%v", err)
		p.damaged = true
		return
	}
	s.finish()
}

// begin is what is done at the base of a segment: the first one says where the log begins, and the fold of what was before must be what
// the snapshot there says.
func (p *partitionCheck) begin(base int64) {
	if p.counts.segments == 1 {
		p.start = base
		p.seed(base)
	} else if !p.damaged {
		p.compareSnapshot(base)
	}
	p.end = base
}

func (s *segmentCheck) last() bool { return s.nextBase < 0 }

func (s *segmentCheck) scan() error {
	f, err := s.open(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	size := s.files[s.base][log.ExtLog]
	sc := newScanner(f, size)
	for {
		b, pos, err := sc.next()
		switch {
		case isEnd(err):
			return nil
		case errors.Is(err, errTail), errors.Is(err, errBatch):
			s.badPlace(f, pos, size, err)
			s.read(size - pos)
			return nil
		case err != nil:
			return fmt.Errorf("batch at %d: %w", pos, err)
		}
		s.read(int64(len(b)))
		if err := s.batch(b, pos); err != nil {
			return err
		}
	}
}

// badPlace tells of a place where no whole batch is, and of what is whole behind it.
func (s *segmentCheck) badPlace(f io.ReaderAt, pos, size int64, cause error) {
	zeros := onlyZeros(f, pos, size)
	batches, records, err := log.SearchBatches(f, pos, size, s.expected, s.base)
	switch {
	case err != nil:
		s.says(Error, s.name, "%v", err)
	case batches > 0:
		s.says(Error, s.name, "batch at %d (offset %d): %v; behind it are %d whole batches with %d records", pos, s.expected, cause, batches, records)
	case !s.last():
		s.says(Error, s.name, "batch at %d (offset %d): %v, before the end of the segment", pos, s.expected, cause)
	case s.o.Live:
		return
	case s.clean:
		s.says(Error, s.name, "%d bytes at the end, from %d on, are no batch (%v), after a clean stop", size-pos, pos, cause)
	case zeros:
		s.says(Warning, s.name, "%d zeros at the end: the next start cuts them off", size-pos)
	default:
		s.says(Warning, s.name, "%d bytes at the end are no whole batch: the next start cuts them off", size-pos)
	}
	if batches > 0 || !s.last() {
		s.damaged = true
	}
}

func onlyZeros(f io.ReaderAt, from, to int64) bool {
	var buf [4096]byte
	for at := from; at < to; at += int64(len(buf)) {
		n, _ := f.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		for _, c := range buf[:n] {
			if c != 0 {
				return false
			}
		}
		if n == 0 {
			return false
		}
	}
	return true
}

// batch checks one batch, and takes it into what is derived.
func (s *segmentCheck) batch(b protocol.Batch, pos int64) error {
	h := b.Header()
	where := fmt.Sprintf("batch at %d (offset %d)", pos, h.BaseOffset)
	if err := b.CheckCRC(); err != nil {
		s.says(Error, s.name, "%s: %v", where, err)
		s.damaged = true
		s.expected = max(s.expected, h.LastOffset()+1)
		return nil
	}
	s.counts.batches++
	switch {
	case h.LastOffsetDelta < 0 || h.LastOffset()-s.base > math.MaxInt32:
		return fmt.Errorf("%s: last offset %d in a segment from %d on", where, h.LastOffset(), s.base)
	case h.BaseOffset < s.expected:
		return fmt.Errorf("%s: an offset from %d on should follow", where, s.expected)
	case h.BaseOffset > s.expected:
		s.gap(s.expected, h.BaseOffset)
	}
	if s.nextBase >= 0 && h.LastOffset() >= s.nextBase {
		return fmt.Errorf("%s: it ends at %d, the next segment begins at %d", where, h.LastOffset(), s.nextBase)
	}
	if h.NumRecords < h.LastOffsetDelta+1 {
		s.compacted = true // a producer's batch has a record for each offset
	}
	if _, there := slices.BinarySearch(s.snapshots, h.BaseOffset); there && h.BaseOffset > s.base && !s.damaged {
		s.compareSnapshot(h.BaseOffset)
		s.within[h.BaseOffset] = true
	}
	s.checkEpoch(&h, where)
	if err := s.records(b, &h); err != nil {
		s.says(Error, s.name, "%s: %v", where, err)
		s.damaged = true
	}
	s.largest = max(s.largest, h.MaxTimestamp)
	s.index.batch(s, &h, pos)
	s.times.batch(s, &h)
	s.expected = h.LastOffset() + 1
	return nil
}

// gap notes offsets that are missing; in a log that was compacted that is as it should be, which may be seen only later.
func (p *partitionCheck) gap(from, to int64) {
	p.gaps = append(p.gaps, Finding{Error, p.place.name, fmt.Sprintf("the offsets from %d to %d are missing", from, to-1)})
}

func (s *segmentCheck) checkEpoch(h *protocol.BatchHeader, where string) {
	if h.LeaderEpoch < s.lastEpoch {
		s.says(Error, s.name, "%s: leader epoch %d after %d", where, h.LeaderEpoch, s.lastEpoch)
	}
	s.lastEpoch = max(s.lastEpoch, h.LeaderEpoch)
	if s.epochTold || len(s.epochs) == 0 || h.BaseOffset < s.epochs[0].Start {
		return
	}
	if epoch := s.epochAt(h.BaseOffset); epoch != h.LeaderEpoch {
		s.says(Error, "leader-epoch-checkpoint", "offset %d is of epoch %d, the log has %d", h.BaseOffset, epoch, h.LeaderEpoch)
		s.epochTold = true
	}
}

// records reads every record, and what coordinators wrote as they do.
func (s *segmentCheck) records(b protocol.Batch, h *protocol.BatchHeader) error {
	if !h.Codec().Valid() {
		return fmt.Errorf("codec %d", h.Codec())
	}
	family := coordinatorTopics[s.place.topic]
	rr := b.Records(math.MaxInt32)
	defer rr.Close()
	before := int32(-1)
	for rr.Next() {
		r := rr.Record()
		s.counts.records++
		if r.OffsetDelta <= before || r.OffsetDelta > h.LastOffsetDelta {
			s.says(Note, s.name, "record at offset %d lies outside of its batch or out of order, as its producer sent it", h.BaseOffset+int64(r.OffsetDelta))
		}
		before = r.OffsetDelta
		if family == "" || h.Control() {
			continue
		}
		c, err := decodeCoordinatorRecord(family, r.Key, r.Value)
		for _, id := range []string{"producerId", "previousProducerId", "nextProducerId"} {
			if n, ok := c.value.get(id).(int64); ok {
				s.maxProducer = max(s.maxProducer, n)
			}
		}
		switch offset := h.BaseOffset + int64(r.OffsetDelta); {
		case errors.Is(err, errUnknownType):
			s.says(Note, s.name, "record at offset %d: %v", offset, err)
		case err != nil:
			s.says(Error, s.name, "record at offset %d: %v", offset, err)
		}
	}
	if err := rr.Err(); err != nil {
		return err
	}
	return s.take(b, h)
}

// The topics of coordinators, and the families of their records.
var coordinatorTopics = map[string]string{"__consumer_offsets": "group", "__transaction_state": "txn", "__share_group_state": "share"}

// finish compares the segment with what lies beside it.
func (s *segmentCheck) finish() {
	s.end = max(s.end, s.expected)
	if s.nextBase > s.expected {
		s.gap(s.expected, s.nextBase)
	}
	s.index.finish(s)
	s.times.finish(s)
	if !s.damaged {
		s.compareTxnIndex()
	}
}
