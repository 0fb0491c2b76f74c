package log

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"oncelog/protocol"
)

// ErrReplaced: the segments to be rewritten are no longer in the log.
var ErrReplaced = errors.New("segments were removed meanwhile")

// A Rewriting is what Rewrite is to make of some neighbouring segments: one segment that has the first one's base. What
// stays of the batches is the owner's to say. All functions are called on the caller's goroutine, with no lock held.
type Rewriting struct {
	From, To int64 // base of the first segment, and of the one behind the last
	// Keep gives what stays of a batch: the batch itself, another with the same offsets, or nil for nothing. What it
	// gives is used until the next call. The batch's CRC has been checked.
	Keep func(protocol.Batch) (protocol.Batch, error)
	// Finish is called when all batches are through and the log is as it was. It gives the new segment's `.txnindex`,
	// which may be empty, and whether that is another than the old segments'. Nil is no index, unchanged.
	Finish func() (index []byte, differs bool, err error)
	// Pace, if not nil, is told of bytes read and written. It may wait; its error ends the rewriting. Before the new segment takes its
	// place it is told of 0 bytes, with truncations kept out, and may not wait.
	Pace func(bytes int) error

	IndexIntervalBytes int32 // index.interval.bytes
	BufferBytes        int   // of what is written at once; 0 is 64 KiB
}

// Rewritten is what Rewrite did.
type Rewritten struct {
	Changed       bool    // not the case for a single segment in which everything stays as it is
	Gone          []int64 // bases of the segments that there are no longer, ascending
	Read, Written int64   // bytes of batches
}

// Rewrite makes one segment of neighbouring ones, none of them the active one, and lets it take their place: compaction,
// whose policy is the owner's. It runs beside the writer, readers and Sync; one at a time. The files of the old segments
// are removed, their `.txnindex` too; who reads them isn't disturbed.
//
// After an error the log is as before, ErrFailed excepted. ErrReplaced: retention or a truncation came first. ErrCorrupt:
// a batch can't be read, or isn't what was written. Other errors are of the file system, or those that the functions
// returned.
func (l *Log) Rewrite(w Rewriting) (Rewritten, error) {
	r := rewriter{Rewriting: w, log: l}
	defer r.close()
	err := r.prepare()
	for i := 0; err == nil && i < len(r.sources); i++ {
		err = r.copySegment(r.sources[i])
	}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return Rewritten{}, errors.Join(err, r.discard())
	}
	return r.done, nil
}

// A rewriter is one Rewrite under way. It is owned by one goroutine.
type rewriter struct {
	Rewriting
	log     *Log
	sources []*segment
	out     *segment
	extent  extent // of out
	index   []byte // content of its .txnindex
	txns    *file  // its .txnindex, if it has one
	written time.Time
	handle  *handle // of out's .log; nil as long as everything stays as it is in a single source
	buf     []byte  // behind what has been written of out
	// created: there may be files of out. ready: some of them may be called .swap. published: out is in the list.
	created, ready, published bool
	done                      Rewritten
}

// prepare takes up the sources.
func (r *rewriter) prepare() error {
	for i, segs := 0, *r.log.segments.Load(); i < len(segs)-1; i++ {
		if s := segs[i]; s.base >= r.From && s.base < r.To {
			r.sources = append(r.sources, s)
			r.extent.next = segs[i+1].base
		}
	}
	if err := r.log.writable(); err != nil {
		return err
	}
	n := len(r.sources)
	if n == 0 || r.sources[0].base != r.From || r.extent.next != r.To {
		return fmt.Errorf("%s: [%d, %d): %w", r.log.dir, r.From, r.To, ErrReplaced)
	}
	last := r.sources[n-1]
	st, err := r.log.fs.Stat(last.data.path())
	if err != nil {
		return last.gone(err)
	}
	r.written = st.ModTime()
	if r.BufferBytes <= 0 {
		r.BufferBytes = copyLen
	}
	r.out = bareSegment(r.log, r.From, last.created)
	r.out.hold()
	r.extent.maxTime, r.extent.maxTimeOffset = noTime, r.From
	for _, f := range r.out.files() {
		f.stage.Store(stageCleaned)
	}
	if n > 1 {
		return r.create()
	}
	return nil
}

// gone tells an error of reading a segment from a rewriting that was too late.
func (s *segment) gone(err error) error {
	if s.removed.Load() || s.log.closed.Load() {
		return fmt.Errorf("%s, segment %d: %w", s.log.dir, s.base, ErrReplaced)
	}
	return err
}

// create makes the new .log.
func (r *rewriter) create() error {
	l := r.log
	l.replacing.Lock() // once the log is closed, its directory's name may be another's
	defer l.replacing.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	l.dirDirty.Store(true)
	r.created = true
	h, err := r.out.data.acquire(os.O_CREATE | os.O_TRUNC)
	r.handle = h
	return err
}

// copySegment takes what stays of one source.
func (r *rewriter) copySegment(s *segment) error {
	e := s.extent()
	h, err := s.data.acquire(0)
	if err != nil {
		return s.gone(err)
	}
	pooled := copies.Get().(*[copyLen]byte)
	defer copies.Put(pooled)
	in := batchReader{log: r.log, segment: s, handle: h, extent: e, buf: pooled[:]}
	defer in.close()
	next := s.base
	for in.pos < e.size {
		b, err := in.batch()
		if err == nil {
			next, err = checkSource(b, next)
		}
		if err != nil {
			return s.gone(fmt.Errorf("%s at %d: %w", s.data.path(), in.pos, err))
		}
		pos := in.pos
		in.pos += int64(len(b))
		r.done.Read += int64(len(b))
		if err := r.pace(len(b)); err != nil {
			return err
		}
		kept, err := r.Keep(b)
		if err != nil {
			return fmt.Errorf("%s at %d: %w", s.data.path(), pos, err)
		}
		if err := r.take(h, b, kept); err != nil {
			return err
		}
	}
	return nil
}

// checkSource sees whether a batch of a source can be trusted, and gives the offset behind it. Were one that isn't what was written
// written anew, nobody could tell any more.
func checkSource(b protocol.Batch, next int64) (int64, error) {
	if err := b.CheckCRC(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	h := b.Header()
	if h.BaseOffset < next || h.LastOffsetDelta < 0 {
		return 0, fmt.Errorf("base offset %d, at least %d expected: %w", h.BaseOffset, next, ErrCorrupt)
	}
	return h.LastOffset() + 1, nil
}

func (r *rewriter) pace(n int) error {
	if r.Pace == nil {
		return nil
	}
	return r.Pace(n)
}

// take appends what was kept of b to the new segment. As long as that is everything, a single source needn't be written anew.
func (r *rewriter) take(source *handle, b, kept protocol.Batch) error {
	same := len(kept) == len(b) && &kept[0] == &b[0]
	if !same && r.handle == nil {
		if err := r.begin(source); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		return nil
	}
	h := kept.Header()
	if r.extent.size+int64(len(kept)) > math.MaxInt32 || h.LastOffset()-r.From > math.MaxInt32 {
		return fmt.Errorf("%s: segment %d: batch %d at %d: a segment may not be longer", r.log.dir, r.From, h.BaseOffset, r.extent.size)
	}
	if err := r.out.reserve(int64(r.IndexIntervalBytes)); err != nil {
		return err
	}
	r.out.noteBatch(&r.extent, &h, r.extent.size, int64(r.IndexIntervalBytes))
	r.extent.size += int64(len(kept))
	if r.handle == nil {
		return nil
	}
	r.buf = append(r.buf, kept...)
	if len(r.buf) < r.BufferBytes {
		return nil
	}
	return r.flush()
}

// begin makes the new .log with what has stayed as it was, the begin of the source.
func (r *rewriter) begin(source *handle) error {
	if err := r.create(); err != nil {
		return err
	}
	for pos := int64(0); pos < r.extent.size; {
		n := int(min(int64(max(r.BufferBytes, copyLen)), r.extent.size-pos))
		if cap(r.buf) < n {
			r.buf = make([]byte, n)
		}
		r.buf = r.buf[:n]
		if got, err := source.ReadAt(r.buf, pos); got < n {
			return fmt.Errorf("%s at %d: %w", source.Name(), pos, unexpectedEOF(err))
		}
		pos += int64(n)
		if err := r.writeAt(pos - int64(n)); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what is in the buffer.
func (r *rewriter) flush() error { return r.writeAt(r.extent.size - int64(len(r.buf))) }

func (r *rewriter) writeAt(pos int64) error {
	n := len(r.buf)
	if n == 0 {
		return nil
	}
	if err := r.pace(n); err != nil {
		return err
	}
	_, err := r.handle.WriteAt(r.buf, pos)
	r.buf = r.buf[:0]
	r.done.Written += int64(n)
	return err
}

// finish ends the new segment and replaces the old ones by it, if there is a difference.
func (r *rewriter) finish() error {
	differs := false
	if r.Finish != nil {
		var err error
		if r.index, differs, err = r.Finish(); err != nil {
			return err
		}
	}
	if r.handle == nil && !differs {
		return nil
	}
	if r.handle == nil {
		h, err := r.sources[0].data.acquire(0)
		if err != nil {
			return r.sources[0].gone(err)
		}
		err = r.begin(h)
		h.leave()
		if err != nil {
			return err
		}
	}
	if err := r.flush(); err != nil {
		return err
	}
	if err := r.handle.Sync(); err != nil {
		return err
	}
	if err := r.replace(); err != nil {
		return err
	}
	r.done.Changed = true
	for _, s := range r.sources[1:] {
		r.done.Gone = append(r.done.Gone, s.base)
	}
	return nil
}

// close gives back what the rewriter holds.
func (r *rewriter) close() {
	if r.handle != nil {
		r.handle.leave()
		r.handle = nil
	}
}
