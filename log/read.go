package log

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"oncelog/internal/vfs"
)

// A Slice is a region of a segment's .log: whole batches, the last perhaps cut off by a limit. It keeps the file open
// until Release, whatever becomes of the segment. The zero Slice is empty. A Slice is immutable.
type Slice struct {
	Pos int64 // of the first byte in the file
	Len int   // bytes; 0 is an empty slice, without a file

	segment *segment
	handle  *handle
}

// File is the segment's file, for sendfile from Pos; nil when Len is 0.
func (s Slice) File() vfs.File {
	if s.handle == nil {
		return nil
	}
	return s.handle.File
}

// ReadAt reads from the slice; off counts from its begin.
func (s Slice) ReadAt(p []byte, off int64) (int, error) {
	left := int64(s.Len) - off
	if off < 0 || left <= 0 {
		return 0, io.EOF
	}
	if int64(len(p)) <= left {
		return s.handle.ReadAt(p, s.Pos+off)
	}
	n, err := s.handle.ReadAt(p[:left], s.Pos+off)
	if err == nil {
		err = io.EOF
	}
	return n, err
}

const copyLen = 64 << 10

// copies are buffers for moving file content.
var copies = sync.Pool{New: func() any { return new([copyLen]byte) }}

// WriteTo writes the whole slice to w through a pooled buffer.
func (s Slice) WriteTo(w io.Writer) (int64, error) {
	buf := copies.Get().(*[copyLen]byte)
	defer copies.Put(buf)
	var done int64
	for done < int64(s.Len) {
		part := buf[:min(copyLen, int64(s.Len)-done)]
		if n, err := s.handle.ReadAt(part, s.Pos+done); n < len(part) {
			return done, fmt.Errorf("%s at %d: %w", s.handle.Name(), s.Pos+done, unexpectedEOF(err))
		}
		n, err := w.Write(part)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// UpperBound is an offset behind all the slice holds, by the grain of the offset index, as Kafka bounds the aborted
// transactions of a fetch: the offset of the next index entry at or behind the slice's end, else the next segment's
// base, else the log's end.
func (s Slice) UpperBound() (int64, error) {
	if s.Len == 0 {
		return 0, nil
	}
	seg := s.segment
	e := seg.extent()
	_, i, err := seg.offsets.floor(byPosition, s.Pos+int64(s.Len)-1)
	if err == nil {
		if b := seg.offsets.body.Load(); i+1 < b.entries() {
			above, err := seg.offsets.at(b, i+1)
			if err == nil {
				return above.offset, nil
			}
		}
	}
	if err != nil && !errors.Is(err, ErrCorrupt) && !seg.removed.Load() {
		return 0, err
	}
	return e.next, nil
}

// Stale tells that the slice's segment has been rewritten, removed or cut since: what the owner kept beside the segment may be gone.
func (s Slice) Stale() bool { return s.segment != nil && s.segment.removed.Load() }

// Release gives the file back. It is called once for each Slice that Read returned, empty ones included.
func (s Slice) Release() {
	if s.handle != nil {
		s.handle.leave()
	}
}

// errStale: what was read belonged to a segment that has been replaced or removed meanwhile.
var errStale = errors.New("segment was replaced")

// staleTries bounds how often a read begins again; each time needs another truncation or removal to be in vain.
const staleTries = 16

// retryStale runs a read until it didn't meet a segment on its way out.
func (l *Log) retryStale(read func() error) error {
	for range staleTries {
		if err := read(); err != errStale {
			return err
		}
	}
	return fmt.Errorf("%s: %w too often", l.dir, errStale)
}

// Read finds the batches from the one that holds the offset from, as a fetch gets them. upTo is the reader's upper
// bound (high watermark, last stable offset): no batch at or above it is included. At most maxBytes come back, so
// that the last batch may be cut off; if the first one is longer it comes whole (minOne) or the slice is empty. A
// slice never goes beyond its segment. It is empty, too, when from is at or above upTo.
//
// ErrOutOfRange when from is below the log start or above its end.
func (l *Log) Read(from int64, maxBytes int, minOne bool, upTo int64) (Slice, error) {
	if l.closed.Load() {
		return Slice{}, fmt.Errorf("%s: %w", l.dir, ErrClosed)
	}
	for range staleTries {
		s, err := l.read(from, maxBytes, minOne, upTo)
		if err != errStale {
			return s, err
		}
	}
	return Slice{}, fmt.Errorf("%s: %w too often", l.dir, errStale)
}

func (l *Log) read(from int64, maxBytes int, minOne bool, upTo int64) (Slice, error) {
	// The end is loaded before the segments, which therefore hold all below it.
	if end := l.end.Load(); from > end || from < l.start.Load() {
		return Slice{}, l.outOfRange(from)
	}
	if from >= upTo {
		return Slice{}, nil
	}
	segs := *l.segments.Load()
	for i := max(0, floorSegment(segs, from)); i < len(segs); i++ {
		s := segs[i]
		e := s.extent()
		if s.base >= upTo {
			break
		}
		if e.next <= from || e.size == 0 {
			continue
		}
		slice, found, err := l.readSegment(s, e, from, maxBytes, minOne, upTo)
		if err != nil {
			slice.Release()
			return Slice{}, s.explain(err)
		}
		if found {
			return slice, nil
		}
	}
	return Slice{}, nil
}

// explain tells an error of reading a segment from a reader that was too late.
func (s *segment) explain(err error) error {
	switch {
	case s.removed.Load():
		return errStale
	case s.log.closed.Load():
		return fmt.Errorf("%s: %w", s.log.dir, ErrClosed)
	}
	return err
}

// readSegment makes the slice. On an error, the slice is to be released.
func (l *Log) readSegment(s *segment, e extent, from int64, maxBytes int, minOne bool, upTo int64) (slice Slice, found bool, err error) {
	h, err := s.data.acquire(0)
	if err != nil {
		return Slice{}, false, err
	}
	slice = Slice{segment: s, handle: h}
	pos, size, ok, err := s.locate(h, from, e)
	if err != nil {
		return slice, false, err
	}
	end, err := s.position(h, upTo, e)
	if err != nil {
		return slice, false, err
	}
	if s.removed.Load() {
		return slice, false, errStale
	}
	if !ok {
		h.leave()
		return Slice{}, false, nil
	}
	limit := int64(max(0, maxBytes))
	if size > limit {
		limit = 0
		if minOne {
			limit = size
		}
	}
	n := min(end-pos, limit)
	if n <= 0 {
		h.leave()
		return Slice{}, true, nil
	}
	slice.Pos, slice.Len = pos, int(n)
	return slice, true, nil
}

// Distance is the number of bytes that lie between two offsets, from the batch that holds the first to the one that
// holds the second: what a fetch with a minimum of bytes waits for. 0 when there is nothing between them.
func (l *Log) Distance(from, to int64) (int64, error) {
	var n int64
	err := l.retryStale(func() (err error) {
		n, err = l.distance(from, to)
		return err
	})
	return n, err
}

func (l *Log) distance(from, to int64) (int64, error) {
	if end := l.end.Load(); from > end || from < l.start.Load() {
		return 0, l.outOfRange(from)
	}
	if from >= to {
		return 0, nil
	}
	segs := *l.segments.Load()
	i := max(0, floorSegment(segs, from))
	var n int64
	for first := i; i < len(segs) && segs[i].base < to; i++ {
		s := segs[i]
		e := s.extent()
		begin, end := int64(0), e.size
		if i == first || to < e.next {
			var err error
			if begin, end, err = s.positions(from, to, e); err != nil {
				return 0, s.explain(err)
			}
		}
		n += end - begin
	}
	return n, nil
}

// positions locates the part of the segment between two offsets, opening the file only if it must.
func (s *segment) positions(from, to int64, e extent) (begin, end int64, err error) {
	inside := func(offset int64) bool { return offset > s.base && offset < e.next }
	if !inside(from) && !inside(to) {
		begin, _ = s.position(nil, from, e)
		end, _ = s.position(nil, to, e)
		return begin, end, nil
	}
	h, err := s.data.acquire(0)
	if err != nil {
		return 0, 0, err
	}
	defer h.leave()
	if inside(from) {
		// Not through position: the boundary it notes is for upper bounds.
		pos, _, ok, err := s.locate(h, from, e)
		if err != nil {
			return 0, 0, err
		}
		if begin = e.size; ok {
			begin = pos
		}
	} else if begin, err = s.position(h, from, e); err != nil {
		return 0, 0, err
	}
	end, err = s.position(h, to, e)
	if err == nil && s.removed.Load() {
		err = errStale
	}
	return begin, end, err
}
