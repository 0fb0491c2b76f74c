package log

import (
	"fmt"
	"io"
	"iter"

	"oncelog/protocol"
)

// Batches iterates over the whole batches from the one that holds the offset, to the log's end at the time of the
// call. A batch is valid until the next step; nothing of it is checked but what is needed to find the next. Memory
// is bounded by the longest batch. An error ends the iteration: ErrOutOfRange for an offset below the first segment
// (which may lie below the log start: its owner derives from what is there) or above the end, ErrCorrupt. It goes on over segments that are removed meanwhile, with what follows them.
func (l *Log) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	return func(yield func(protocol.Batch, error) bool) {
		end := l.end.Load()
		if from > end || from < l.First() {
			yield(nil, l.outOfRange(from))
			return
		}
		pooled := copies.Get().(*[copyLen]byte)
		defer copies.Put(pooled)
		r := batchReader{log: l, next: from, end: end, buf: pooled[:]}
		defer r.close()
		for {
			b, err := r.read()
			if err == io.EOF || !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// A batchReader reads batch after batch. It is owned by one goroutine.
type batchReader struct {
	log       *Log
	next, end int64 // the batches wanted hold offsets in [next, end)

	segment *segment // being read; nil between two
	handle  *handle
	extent  extent
	pos     int64 // in the segment's .log
	buf     []byte
	at      int64 // position of buf[0]
	have    int   // valid bytes in buf
}

func (r *batchReader) close() {
	if r.handle != nil {
		r.handle.leave()
		r.handle, r.segment = nil, nil
	}
}

// read returns the next batch; io.EOF when there is none below the end.
func (r *batchReader) read() (protocol.Batch, error) {
	for tries := 0; ; {
		if r.segment == nil {
			if err := r.open(); err != nil {
				if err == errStale && tries < staleTries {
					tries++
					continue
				}
				return nil, err
			}
		}
		if r.pos >= r.extent.size {
			r.next = max(r.next, r.extent.next)
			r.close()
			continue
		}
		b, err := r.batch()
		if err != nil && r.segment.removed.Load() {
			r.close() // what it held is gone, or is in another
			continue
		}
		if err != nil {
			return nil, err
		}
		h := b.Header()
		if h.BaseOffset >= r.end {
			return nil, io.EOF
		}
		r.pos += int64(len(b))
		if h.LastOffset() < r.next {
			continue
		}
		r.next = h.LastOffset() + 1
		return b, nil
	}
}

// open goes to the segment that holds the next offset, or to one behind.
func (r *batchReader) open() error {
	if r.next >= r.end {
		return io.EOF
	}
	segs := *r.log.segments.Load()
	i := max(0, floorSegment(segs, r.next))
	for ; i < len(segs); i++ {
		if e := segs[i].extent(); e.size > 0 && e.next > r.next {
			break
		}
	}
	if i == len(segs) {
		return io.EOF
	}
	s := segs[i]
	e := s.extent()
	h, err := s.data.acquire(0)
	if err != nil {
		return s.explain(err)
	}
	pos, _, ok, err := s.locate(h, r.next, e)
	if s.removed.Load() {
		err = errStale
	}
	if err != nil {
		h.leave()
		return s.explain(err)
	}
	if !ok {
		pos = e.size
	}
	r.segment, r.handle, r.extent, r.pos, r.at, r.have = s, h, e, pos, 0, 0
	return nil
}

// batch returns the whole batch at r.pos.
func (r *batchReader) batch() (protocol.Batch, error) {
	left := r.extent.size - r.pos
	head, err := r.bytes(int(min(left, protocol.BatchHeaderLen)))
	if err != nil {
		return nil, err
	}
	size, err := batchSize(head, r.pos)
	if err == nil && int64(size) > left {
		err = errPartial
	}
	if err == errPartial {
		err = fmt.Errorf("batch at %d: %w: %w", r.pos, ErrCorrupt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.handle.Name(), err)
	}
	return r.bytes(size)
}

// bytes returns n bytes at r.pos, in a buffer that grows to what one batch needs.
func (r *batchReader) bytes(n int) ([]byte, error) {
	if from := r.pos - r.at; from >= 0 && from+int64(n) <= int64(r.have) {
		return r.buf[from : from+int64(n) : from+int64(n)], nil
	}
	if n > len(r.buf) {
		r.buf = make([]byte, n)
	}
	want := int(min(int64(len(r.buf)), r.extent.size-r.pos))
	got, err := r.handle.ReadAt(r.buf[:want], r.pos)
	r.at, r.have = r.pos, got
	if r.segment.removed.Load() {
		r.have = 0 // the file may have been cut and written over meanwhile
		return nil, errStale
	}
	if got < n {
		r.have = 0
		return nil, fmt.Errorf("%s ends at %d: %w", r.handle.Name(), r.pos+int64(got), unexpectedEOF(err))
	}
	return r.buf[:n:n], nil
}
