package log

import (
	"errors"
	"fmt"
	"io"
	"math"

	"oncelog/protocol"
)

// LargestTimestamp is the greatest timestamp in the segment at base, in ms; for one without timestamps when its .log
// was last written. Retention by time goes by it. ErrOutOfRange when there is no such segment.
func (l *Log) LargestTimestamp(base int64) (int64, error) {
	segs := *l.segments.Load()
	i := floorSegment(segs, base)
	if i < 0 || segs[i].base != base {
		return 0, l.outOfRange(base)
	}
	return segs[i].largestTimestamp()
}

// FirstTimestamp is the greatest timestamp of the first batch in the segment at base, in ms; -1 if it has none, or no batch. Compaction
// after a time goes by it. ErrOutOfRange when there is no such segment.
func (l *Log) FirstTimestamp(base int64) (int64, error) {
	segs := *l.segments.Load()
	i := floorSegment(segs, base)
	if i < 0 || segs[i].base != base {
		return 0, l.outOfRange(base)
	}
	s := segs[i]
	e := s.extent()
	if e.size == 0 {
		return noTime, nil
	}
	h, err := s.data.acquire(0)
	if err != nil {
		return 0, s.explain(err)
	}
	defer h.leave()
	hdr, _, ok, err := s.findFrom(h, entry{}, s.base, e)
	if err != nil || !ok {
		return noTime, s.explainIf(err)
	}
	return hdr.MaxTimestamp, nil
}

func (s *segment) largestTimestamp() (int64, error) {
	e, err := s.largest()
	if err != nil {
		return 0, s.explain(err)
	}
	if e.maxTime >= 0 {
		return e.maxTime, nil
	}
	st, err := s.log.fs.Stat(s.data.path())
	if err != nil {
		return 0, s.explain(err)
	}
	return st.ModTime().UnixMilli(), nil
}

// MaxTimestamp finds the first record with the greatest timestamp in the log; ok is false for a log without records.
// As in Kafka, a record below the log start counts while its segment is there, and without any timestamp the answer
// is the first record and -1.
func (l *Log) MaxTimestamp() (found TimestampOffset, ok bool, err error) {
	err = l.retryStale(func() (err error) {
		found, ok, err = l.maxTimestamp()
		return err
	})
	return found, ok, err
}

func (l *Log) maxTimestamp() (TimestampOffset, bool, error) {
	var best *segment
	var most extent
	for _, s := range *l.segments.Load() {
		e, err := s.largest()
		if err != nil {
			return TimestampOffset{}, false, s.explain(err)
		}
		if e.size > 0 && (best == nil || e.maxTime > most.maxTime) {
			best, most = s, e
		}
	}
	if best == nil {
		return TimestampOffset{}, false, nil
	}
	found, ok, err := best.search(most, most.maxTimeOffset, most.maxTime, 0)
	return found, ok, best.explainIf(err)
}

// OffsetAt finds the first record at or above the log start whose timestamp is at or above ts (ms); ok is false when
// there is none. The caller judges whether its consumer may see it.
func (l *Log) OffsetAt(ts int64) (found TimestampOffset, ok bool, err error) {
	err = l.retryStale(func() (err error) {
		found, ok, err = l.offsetAt(ts)
		return err
	})
	return found, ok, err
}

func (l *Log) offsetAt(ts int64) (TimestampOffset, bool, error) {
	segs := *l.segments.Load()
	start := l.start.Load()
	for i := max(0, floorSegment(segs, start)); i < len(segs); i++ {
		s := segs[i]
		e, err := s.largest()
		if err != nil {
			return TimestampOffset{}, false, s.explain(err)
		}
		if e.maxTime < ts || e.size == 0 {
			continue
		}
		hint, n, err := s.times.floor(byTime, ts)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return TimestampOffset{}, false, s.explain(err)
		}
		from := start
		if err == nil && n >= 0 && hint.offset < e.next {
			from = max(start, hint.offset)
		}
		found, ok, err := s.search(e, from, ts, start)
		if ok || err != nil {
			return found, ok, s.explainIf(err)
		}
	}
	return TimestampOffset{}, false, nil
}

func (s *segment) explainIf(err error) error {
	if err == nil {
		return nil
	}
	return s.explain(err)
}

// search goes through the segment's batches from the one that holds the offset from, to the first record with a
// timestamp of at least ts and an offset of at least atLeast.
func (s *segment) search(e extent, from, ts, atLeast int64) (TimestampOffset, bool, error) {
	h, err := s.data.acquire(0)
	if err != nil {
		return TimestampOffset{}, false, err
	}
	defer h.leave()
	_, pos, ok, err := s.find(h, from, e)
	if err != nil || !ok {
		return TimestampOffset{}, false, err
	}
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: h.File, pos: pos, end: e.size, buf: block[:]}
	for {
		hdr, pos, err := w.next()
		if err == io.EOF {
			return TimestampOffset{}, false, nil
		}
		if err != nil {
			return TimestampOffset{}, false, fmt.Errorf("%s: %w", s.data.path(), err)
		}
		if hdr.MaxTimestamp < ts || hdr.LastOffset() < atLeast {
			continue
		}
		b := make(protocol.Batch, hdr.Size)
		if n, err := h.ReadAt(b, pos); n < len(b) {
			return TimestampOffset{}, false, fmt.Errorf("%s at %d: %w", s.data.path(), pos, unexpectedEOF(err))
		}
		if s.removed.Load() {
			return TimestampOffset{}, false, errStale
		}
		if found, ok, err := searchBatch(b, ts, atLeast); ok || err != nil {
			return found, ok, err
		}
	}
}

var errFound = errors.New("found")

func searchBatch(b protocol.Batch, ts, atLeast int64) (found TimestampOffset, ok bool, err error) {
	hdr := b.Header()
	err = b.Walk(math.MaxInt32, func(r protocol.RecordInfo) error {
		offset, timestamp := hdr.BaseOffset+int64(r.OffsetDelta), hdr.Timestamp(r.TimestampDelta)
		if timestamp < ts || offset < atLeast {
			return nil
		}
		found = TimestampOffset{Offset: offset, Timestamp: timestamp, LeaderEpoch: hdr.LeaderEpoch}
		return errFound
	})
	if err == errFound {
		return found, true, nil
	}
	if err != nil {
		err = fmt.Errorf("records of batch %d: %w: %w", hdr.BaseOffset, ErrCorrupt, err)
	}
	return TimestampOffset{}, false, err
}
