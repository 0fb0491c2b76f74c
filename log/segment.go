package log

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"oncelog/protocol"
)

const (
	noTime      = -1            // what Kafka says for no timestamp
	unknownTime = math.MinInt64 // not read from the disk yet
)

// A segment is one .log and its indexes. The log's writer changes it; readers see it through extent and the
// index bodies, and may keep it as long as they like: once removed is set, what they read may be anything, and they
// begin again with the log's present segments.
type segment struct {
	log       *Log
	base      int64
	data      file // .log
	offsets   index
	times     index
	removed   atomic.Bool
	suspected atomic.Bool // its offset index has wrong entries
	synced    bool        // the whole segment, indexes included, is durable; guarded by Log.syncing
	indexed   int64       // so are the index entries below this offset; guarded by Log.syncing

	// What readers see of the segment's end; written by the writer between two steps of version.
	version                            atomic.Uint32 // odd while the rest is being changed
	size, next, maxTime, maxTimeOffset atomic.Int64
	tail, tailSize                     atomic.Int64

	// The writer's.
	created    int64 // ms
	firstTime  int64 // maxTimestamp of the first batch; unknownTime until needed, and while there is none
	sinceEntry int64 // bytes appended since the last index entry, or since the segment was opened
	jitter     int64 // ms
	lastTime   int64 // of the last time index entry; valid once warm
	warm       bool  // the fields and entries that an append needs have been read
}

// An extent is the end of a segment at one moment.
type extent struct {
	size          int64 // of the .log
	next          int64 // offset behind the last batch; for all but the last segment the base of the segment behind
	maxTime       int64 // greatest timestamp, noTime, or unknownTime
	maxTimeOffset int64 // last offset of the first batch that has it
	tail          int64 // base offset of the last batch, which is what most readers want
	tailSize      int64 // its bytes; 0 when nothing was appended since the segment was opened, and tail is unknown
}

func newSegment(l *Log, base, now int64) *segment {
	s := bareSegment(l, base, now)
	s.jitter = l.jitterOf(base)
	return s
}

// bareSegment makes a segment that isn't going to be appended to.
func bareSegment(l *Log, base, now int64) *segment {
	s := &segment{log: l, base: base, created: now, firstTime: unknownTime, indexed: base}
	s.data = file{segment: s, ext: ExtLog}
	s.offsets = index{file: file{segment: s, ext: ExtIndex}, width: offsetEntryLen}
	s.times = index{file: file{segment: s, ext: ExtTimeIndex}, width: timeEntryLen}
	s.offsets.reset(0)
	s.times.reset(0)
	s.publish(extent{next: base, maxTime: noTime, maxTimeOffset: base})
	return s
}

func (s *segment) extent() extent {
	for {
		v := s.version.Load()
		e := extent{s.size.Load(), s.next.Load(), s.maxTime.Load(), s.maxTimeOffset.Load(), s.tail.Load(), s.tailSize.Load()}
		if v&1 == 0 && s.version.Load() == v {
			return e
		}
	}
}

func (s *segment) publish(e extent) {
	s.version.Add(1)
	s.size.Store(e.size)
	s.next.Store(e.next)
	s.maxTime.Store(e.maxTime)
	s.maxTimeOffset.Store(e.maxTimeOffset)
	s.tail.Store(e.tail)
	s.tailSize.Store(e.tailSize)
	s.version.Add(1)
}

func (s *segment) files() [3]*file { return [3]*file{&s.data, &s.offsets.file, &s.times.file} }

func (s *segment) drop() {
	for _, f := range s.files() {
		f.drop()
	}
}

// locate gives the place and the size of the batch that find finds. It knows the last one without reading.
func (s *segment) locate(h *handle, offset int64, e extent) (pos, size int64, ok bool, err error) {
	if e.tailSize > 0 && offset >= e.tail && offset < e.next {
		return e.size - e.tailSize, e.tailSize, true, nil
	}
	hdr, pos, ok, err := s.find(h, offset, e)
	return pos, int64(hdr.Size), ok, err
}

// find locates the first batch whose last offset is at or above the offset, below e.size. ok is false when there
// is none. The offset index is a hint that is checked: where it is wrong the segment is searched from its start.
func (s *segment) find(h *handle, offset int64, e extent) (hdr protocol.BatchHeader, pos int64, ok bool, err error) {
	from, i, err := s.offsets.floor(byOffset, offset)
	if err == nil && i >= 0 && from.position == 0 {
		err = fmt.Errorf("%s: entry %d is none: %w", s.offsets.path(), i, ErrCorrupt)
	}
	if err == nil {
		hdr, pos, ok, err = s.findFrom(h, from, offset, e)
	}
	if err != nil && broken(err) && !s.removed.Load() {
		if hdr, pos, ok, err = s.findFrom(h, entry{}, offset, e); err == nil && !s.removed.Load() {
			s.suspect()
		}
	}
	return hdr, pos, ok, err
}

func (s *segment) findFrom(h *handle, from entry, offset int64, e extent) (hdr protocol.BatchHeader, pos int64, ok bool, err error) {
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: h.File, pos: from.position, end: e.size, buf: block[:]}
	if from.position > 0 {
		hdr, pos, err = w.next()
		if err == io.EOF || err == nil && hdr.LastOffset() != from.offset {
			err = fmt.Errorf("%s: no batch that ends with %d at %d: %w", s.offsets.path(), from.offset, from.position, ErrCorrupt)
		}
		if err != nil {
			return hdr, pos, false, err
		}
		if from.offset == offset {
			return hdr, pos, true, nil
		}
	}
	for {
		hdr, pos, err = w.next()
		switch {
		case err == io.EOF:
			return hdr, pos, false, nil
		case err == errPartial:
			return hdr, pos, false, fmt.Errorf("%s: batch at %d: %w: %w", s.data.path(), pos, ErrCorrupt, err)
		case err != nil:
			return hdr, pos, false, fmt.Errorf("%s: %w", s.data.path(), err)
		case hdr.LastOffset() >= offset:
			return hdr, pos, true, nil
		}
	}
}

// position is where the first batch with an offset at or above the given one starts, or the segment's end.
func (s *segment) position(h *handle, offset int64, e extent) (int64, error) {
	switch {
	case offset <= s.base:
		return 0, nil
	case offset >= e.next:
		return e.size, nil
	}
	if b := s.log.bound.Load(); b != nil && b.segment == s && b.offset == offset {
		return b.position, nil
	}
	pos, _, ok, err := s.locate(h, offset, e)
	if err != nil {
		return 0, err
	}
	if !ok {
		return e.size, nil
	}
	s.log.bound.Store(&boundary{segment: s, offset: offset, position: pos})
	return pos, nil
}

// warmUp reads what the first append needs to know of a segment that was opened.
func (s *segment) warmUp() error {
	if s.warm {
		return nil
	}
	if _, err := s.largest(); err != nil {
		return err
	}
	last, ok, err := s.times.last()
	if err != nil {
		return err
	}
	s.lastTime = noTime
	if ok {
		s.lastTime = last.time
	}
	if err := s.readFirstTime(); err != nil {
		return err
	}
	s.warm = true
	return nil
}

func (s *segment) readFirstTime() error {
	e := s.extent()
	if s.firstTime != unknownTime || e.size == 0 {
		return nil
	}
	h, err := s.data.acquire(0)
	if err != nil {
		return err
	}
	defer h.leave()
	hdr, _, _, err := s.findFrom(h, entry{}, s.base, e)
	if err != nil {
		return err
	}
	s.firstTime = hdr.MaxTimestamp
	return nil
}

// largest returns the extent with the greatest timestamp, read from the time index if need be: that index, which
// got a last entry when the segment was closed, is trusted as in Kafka, unless it can't be right.
func (s *segment) largest() (extent, error) {
	e := s.extent()
	if e.maxTime != unknownTime {
		return e, nil
	}
	found := extent{maxTime: noTime, maxTimeOffset: s.base}
	last, ok, err := s.times.last()
	switch {
	case err != nil && !errors.Is(err, ErrCorrupt):
		return e, err
	case err != nil, ok && (last.time <= 0 || last.offset >= e.next): // zeros are what a loss of power leaves of an entry
		if found, err = s.scanLargest(found, entry{}, e); err != nil {
			return e, err
		}
	case ok:
		found.maxTime, found.maxTimeOffset = last.time, last.offset
	}
	s.log.loading.Lock()
	defer s.log.loading.Unlock()
	if e = s.extent(); e.maxTime == unknownTime {
		e.maxTime, e.maxTimeOffset = found.maxTime, found.maxTimeOffset
		s.publish(e)
	}
	return e, nil
}

// scanLargest raises the greatest timestamp in found by those of the batches from a position on.
func (s *segment) scanLargest(found extent, from entry, e extent) (extent, error) {
	h, err := s.data.acquire(0)
	if err != nil {
		return found, err
	}
	defer h.leave()
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: h.File, pos: from.position, end: e.size, buf: block[:]}
	for {
		hdr, _, err := w.next()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("%s: %w", s.data.path(), err)
		}
		if hdr.MaxTimestamp > found.maxTime {
			found.maxTime, found.maxTimeOffset = hdr.MaxTimestamp, hdr.LastOffset()
		}
	}
}

// noteBatch raises the greatest timestamp in e and adds index entries for a batch that has been written at pos: what
// Kafka decides for each single batch of an append. The indexes have room (reserveFor).
func (s *segment) noteBatch(e *extent, hdr *protocol.BatchHeader, pos int64, interval int64) {
	last := hdr.LastOffset()
	if hdr.MaxTimestamp > e.maxTime {
		e.maxTime, e.maxTimeOffset = hdr.MaxTimestamp, last
	}
	if s.sinceEntry > interval {
		s.offsets.add(entry{offset: last, position: pos})
		s.addTime(*e)
		s.sinceEntry = 0
	}
	s.sinceEntry += int64(hdr.Size)
	if pos == 0 {
		s.firstTime = hdr.MaxTimestamp
	}
}

// addTime adds the greatest timestamp to the time index unless its last entry has it already.
func (s *segment) addTime(e extent) {
	if e.maxTime > s.lastTime {
		s.times.add(entry{time: e.maxTime, offset: e.maxTimeOffset})
		s.lastTime = e.maxTime
	}
}

// reserve makes room for the entries that the next batch may need.
func (s *segment) reserve(interval int64) error {
	if s.sinceEntry <= interval {
		return nil
	}
	if err := s.offsets.reserve(); err != nil {
		return err
	}
	return s.times.reserve()
}

// finish writes the indexes as a segment that isn't written any more has them: with an entry for the greatest
// timestamp. One without batches needs none.
func (s *segment) finish() error {
	if x, y := &s.offsets, &s.times; s.size.Load() == 0 && !x.exists && !x.longer && !y.exists && !y.longer {
		return nil
	}
	if e := s.extent(); s.warm && e.maxTime > s.lastTime {
		if err := s.times.reserve(); err != nil {
			return err
		}
		s.addTime(e)
	}
	if err := s.times.flush(); err != nil {
		return err
	}
	return s.offsets.flush()
}
