package log

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// While segments are rewritten again and again, beside a writer that appends and rolls, Sync, retention and truncation, readers get whole
// batches from where they asked, each unharmed and the offsets rising, and none that is kept is missing.
func TestRewriteBesideReaders(t *testing.T) {
	fsys := unsynced{vfs.OS}
	files := NewFiles(fsys, 3) // so few that files are opened and closed all the time
	defer files.Close()
	l, _, err := Open(fsys, t.TempDir(), Options{Files: files, Settings: Settings{SegmentBytes: 3000, IndexIntervalBytes: 300}}, Recovery{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	// keeps is what no rewriting takes away.
	keeps := func(offset int64) bool { return offset%7 == 0 }
	var committed atomic.Int64
	done := make(chan struct{})
	var running sync.WaitGroup
	repeat := func(do func(i int) error) {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for seed := range 3 {
		r := raceReader{t: t, log: l, rng: seeded(seed), committed: &committed, keeps: keeps}
		repeat(func(int) error { return r.step() })
	}
	repeat(func(int) error { return l.Sync(committed.Load()) })
	rng := seeded(50)
	changed := atomic.Int64{}
	repeat(func(int) error {
		n, err := rewriteAny(l, rng, keeps)
		changed.Add(n)
		return err
	})
	sizes := seeded(99)
	for i := 0; i < 800 || i < 20_000 && changed.Load() < 20; i++ {
		mustAppend(t, l, makeBatch(t, l.End(), 1, 1000+l.End(), 70+sizes.IntN(300)))
		switch {
		case i%7 == 0:
			committed.Store(l.End())
		case i%100 == 1:
			if _, err := l.TruncateTo(committed.Load(), clock); err != nil {
				t.Fatal(err)
			}
		case i%300 == 2:
			segs := l.Segments()
			if base := segs[len(segs)/3].Base; base <= committed.Load() {
				removed, err := l.RemoveBefore(base)
				if err != nil && !errors.Is(err, ErrOutOfRange) { // it has been rewritten just now
					t.Fatal(err)
				}
				for _, r := range removed {
					r.Unlink(vfs.OS)
				}
			}
		}
	}
	close(done)
	running.Wait()
	if changed.Load() < 20 {
		t.Errorf("only %d rewritings", changed.Load())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// rewriteAny rewrites some neighbouring segments, if there are enough. It gives 1 if that changed something.
func rewriteAny(l *Log, rng *rand.Rand, keeps func(int64) bool) (changed int64, err error) {
	segs := l.Segments()
	if len(segs) < 4 {
		return 0, nil
	}
	i := rng.IntN(len(segs) - 1)
	n := 1 + rng.IntN(min(3, len(segs)-1-i))
	share := rng.IntN(4)
	w, err := l.Rewrite(Rewriting{From: segs[i].Base, To: segs[i+n].Base, IndexIntervalBytes: 300,
		Keep: func(b protocol.Batch) (protocol.Batch, error) {
			if keeps(b.Header().BaseOffset) || rng.IntN(3) < share {
				return b, nil
			}
			return nil, nil
		}, Finish: func() ([]byte, bool, error) { return make([]byte, rng.IntN(2)*10), false, nil }})
	if errors.Is(err, ErrReplaced) {
		err = nil
	}
	if w.Changed {
		changed = 1
	}
	return changed, err
}

// raceReader is one of the readers.
type raceReader struct {
	t         *testing.T
	log       *Log
	rng       *rand.Rand
	committed *atomic.Int64
	keeps     func(offset int64) bool
	next      int64
}

func (r *raceReader) step() (err error) {
	switch bound := r.committed.Load(); r.rng.IntN(4) {
	case 0:
		_, _, err = r.log.OffsetAt(1000 + r.next)
	case 1:
		err = r.iterate()
	default:
		r.next, err = readSparsely(r.t, r.log, r.next, r.rng.IntN(2000), bound, r.keeps)
	}
	if errors.Is(err, ErrOutOfRange) {
		r.next, err = r.log.Start(), nil
	}
	return err
}

// iterate goes through the log with Batches.
func (r *raceReader) iterate() error {
	last := r.next - 1
	for b, err := range r.log.Batches(r.next) {
		if err != nil {
			return err
		}
		h := b.Header()
		if b.CheckCRC() != nil || h.BaseOffset <= last {
			r.t.Errorf("%+v behind %d", h, last)
		}
		for o := last + 1; o < h.BaseOffset; o++ {
			if r.keeps(o) && o >= r.log.Start() {
				r.t.Errorf("%d is missing before %+v", o, h)
			}
		}
		last = h.BaseOffset
	}
	return nil
}

// readSparsely reads like a consumer of a compacted topic and gives the offset to go on at.
func readSparsely(t *testing.T, l *Log, next int64, maxBytes int, bound int64, keeps func(int64) bool) (int64, error) {
	s, err := l.Read(next, maxBytes, true, bound)
	if err != nil {
		return next, err
	}
	defer s.Release()
	if s.Len == 0 {
		return l.Start(), nil
	}
	data := make([]byte, s.Len)
	if _, err := s.ReadAt(data, 0); err != nil {
		return next, err
	}
	for len(data) > 0 {
		b, rest, err := protocol.SplitBatch(data)
		if errors.Is(err, protocol.ErrShort) {
			break
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return next, err
		}
		h := b.Header()
		for o := next; o < h.BaseOffset; o++ {
			if keeps(o) && o >= l.Start() {
				t.Errorf("%d is missing before %+v", o, h)
			}
		}
		next, data = h.LastOffset()+1, rest
	}
	return next, nil
}
