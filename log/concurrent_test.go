package log

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// While one goroutine appends, rolls, truncates above the readers' bound and removes old segments, and another syncs,
// what readers get is always whole batches from where they asked, with offsets that go on without a hole.
func TestReadersNeverSeeTheWriterAtWork(t *testing.T) {
	dir := t.TempDir()
	fsys := unsynced{vfs.OS}
	files := NewFiles(fsys, 3) // so few that files are opened and closed all the time
	l, _, err := Open(fsys, dir, Options{Files: files, Settings: Settings{SegmentBytes: 4000, IndexIntervalBytes: 300}}, Recovery{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	var committed atomic.Int64 // what is below is never truncated
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			rng := seeded(i)
			next := int64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				var err error
				switch bound := committed.Load(); rng.IntN(6) {
				case 0:
					_, err = l.Distance(next, bound)
				case 1:
					_, _, err = l.OffsetAt(1000 + next)
				case 2:
					err = iterate(l, next, bound)
				default:
					next, err = readOn(l, next, rng.IntN(3000), bound)
				}
				if errors.Is(err, ErrOutOfRange) && l.Start() > next {
					next, err = l.Start(), nil
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := l.Sync(committed.Load()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	rng := seeded(99)
	for i := range 1200 {
		mustAppend(t, l, makeBatch(t, l.End(), 1+rng.IntN(3), 1000+l.End(), 70+rng.IntN(500)))
		switch {
		case i%7 == 0:
			committed.Store(l.End())
		case i%50 == 1:
			if _, err := l.TruncateTo(committed.Load(), clock); err != nil {
				t.Fatal(err)
			}
		case i%90 == 2:
			segs := l.Segments()
			if base := segs[len(segs)/2].Base; base <= committed.Load() {
				removed, err := l.RemoveBefore(base)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range removed {
					r.Unlink(vfs.OS)
				}
			}
		case i%200 == 3:
			files.CloseIdle()
		}
	}
	close(done)
	readers.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files.Close()
}

// readOn reads once and returns the offset behind the whole batches that came.
func readOn(l *Log, from int64, maxBytes int, bound int64) (int64, error) {
	s, err := l.Read(from, maxBytes, true, bound)
	if err != nil {
		return from, err
	}
	defer s.Release()
	buf := make([]byte, s.Len)
	if s.Len > 0 {
		if _, err := s.ReadAt(buf, 0); err != nil {
			return from, err
		}
	}
	next := from
	for {
		b, rest, err := protocol.SplitBatch(buf)
		if errors.Is(err, protocol.ErrShort) {
			return next, nil
		}
		if err != nil {
			return from, err
		}
		if err := checkNext(b, &next, bound); err != nil {
			return from, err
		}
		buf = rest
	}
}

func checkNext(b protocol.Batch, next *int64, bound int64) error {
	h := b.Header()
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if h.BaseOffset > *next || h.LastOffset() < *next || h.LastOffset() >= bound {
		return errors.New("wrong batch")
	}
	*next = h.LastOffset() + 1
	return nil
}

func iterate(l *Log, from, bound int64) error {
	next := from
	for b, err := range l.Batches(from) {
		if err != nil {
			return err
		}
		if b.Header().LastOffset() >= bound {
			return nil // may be truncated
		}
		// Old segments go while the iteration is between two of them.
		if h := b.Header(); h.BaseOffset > next && h.BaseOffset <= l.Start() {
			next = h.BaseOffset
		}
		if err := checkNext(b, &next, bound); err != nil {
			return err
		}
	}
	return nil
}
