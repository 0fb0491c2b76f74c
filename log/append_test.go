package log

import (
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// bases are the base offsets of the log's segments.
func bases(l *Log) string {
	var b []int64
	for _, s := range l.Segments() {
		b = append(b, s.Base)
	}
	return fmt.Sprint(b)
}

func TestRollBySize(t *testing.T) {
	b := makeBatch(t, 0, 1, 1000, 200)
	size := int32(len(b))
	l, _ := mustOpen(t, newMem(t), Settings{SegmentBytes: 2 * size}, Recovery{})
	for i := range int64(5) {
		a := mustAppend(t, l, makeBatch(t, i, 1, 1000, 200))
		want := Appended{Segment: i / 2 * 2, Position: i % 2 * int64(size), Rolled: i > 0 && i%2 == 0}
		if a != want {
			t.Errorf("batch %d: %+v, want %+v", i, a, want)
		}
	}
	// A batch that no segment has room for gets one of its own.
	if a := mustAppend(t, l, makeBatch(t, 5, 1, 1000, 500)); !a.Rolled || a.Segment != 5 {
		t.Errorf("%+v", a)
	}
	if a := mustAppend(t, l, makeBatch(t, 6, 1, 1000, 200)); !a.Rolled || a.Segment != 6 {
		t.Errorf("%+v", a)
	}
	if got := bases(l); got != "[0 2 4 5 6]" {
		t.Errorf("segments %s", got)
	}
}

// segment.ms counts from the maxTimestamp of the first batch, by the batches' own time; the clock counts only where
// they have none.
func TestRollByTime(t *testing.T) {
	at := func(ms int64) time.Time { return clock.Add(time.Duration(ms) * time.Millisecond) }
	l, _ := mustOpen(t, newMem(t), Settings{SegmentMs: 1000}, Recovery{})
	step := func(ts int64, now int64, rolled bool) {
		t.Helper()
		a, err := l.Append(makeBatch(t, l.End(), 1, ts, 100), at(now))
		if err != nil || a.Rolled != rolled {
			t.Errorf("batch of %d at %d: %+v, %v", ts, now, a, err)
		}
	}
	step(5000, 0, false)
	step(6000, 10_000_000, false) // not more than segment.ms behind the first
	step(3000, 0, false)
	step(-1, 10_000_000, false)
	step(6001, 0, true)
	if _, _, err := l.Roll(at(0)); err != nil {
		t.Fatal(err)
	}
	step(-1, 0, false) // a segment without timestamps, begun at 0
	step(9_000_000, 1000, false)
	step(-1, 1001, true)
}

func TestRollJitter(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{SegmentMs: 1000, SegmentJitterMs: 5000}, Recovery{})
	seen := map[int64]bool{}
	for base := range int64(50) {
		j := l.jitterOf(base)
		if j < 0 || j >= 1000 {
			t.Fatalf("jitter %d", j)
		}
		seen[j] = true
	}
	if len(seen) < 20 {
		t.Errorf("only %d values", len(seen))
	}
}

// The time index always keeps one place for the last entry: with segment.index.bytes=36, two entries are the most.
func TestRollByFullIndex(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{IndexIntervalBytes: 0, SegmentIndexBytes: 36}, Recovery{})
	var rolled []int64
	for i := range int64(8) {
		if a := mustAppend(t, l, makeBatch(t, i, 1, 1000+i, 100)); a.Rolled {
			rolled = append(rolled, i)
		}
	}
	if fmt.Sprint(rolled) != "[3 6]" {
		t.Errorf("rolled at %v", rolled)
	}
}

func TestRollByRelativeOffset(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 1, 1000, 100))
	if a := mustAppend(t, l, makeBatch(t, math.MaxInt32, 1, 1000, 100)); a.Rolled {
		t.Errorf("%+v", a)
	}
	a := mustAppend(t, l, makeBatch(t, math.MaxInt32+10, 1, 1000, 100))
	if !a.Rolled || a.Segment != math.MaxInt32+10 {
		t.Errorf("%+v", a)
	}
	// An empty segment too far below the batch is left behind.
	if _, _, err := l.Roll(clock); err != nil {
		t.Fatal(err)
	}
	if a = mustAppend(t, l, makeBatch(t, 3*math.MaxInt32, 1, 1000, 100)); !a.Rolled {
		t.Errorf("%+v", a)
	}
	if got := collect(t, l, 0); len(got) != 4 {
		t.Errorf("%d batches", len(got))
	}
}

func TestAppendRefusesWhatItMustNotGet(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 3, 1000, 100))
	whole := makeBatch(t, 3, 1, 1000, 100)
	for _, b := range []protocol.Batch{makeBatch(t, 2, 1, 1000, 100), whole[:len(whole)-1]} {
		if _, err := l.Append(b, clock); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("%v", err)
		}
	}
	if l.End() != 3 {
		t.Errorf("end %d", l.End())
	}
}

// A full disk costs only the batch that doesn't fit.
func TestDiskFull(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, Settings{}, Recovery{})
	b := makeBatch(t, 0, 1, 1000, 200)
	mustAppend(t, l, b)
	m.SetCapacity(int64(len(b)) + 50)
	for range 2 {
		if _, err := l.Append(makeBatch(t, 1, 1, 1000, 200), clock); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFailed) {
			t.Fatalf("%v", err)
		}
		if got := get(t, m, "/p/00000000000000000000.log"); len(got) != len(b) {
			t.Fatalf("%d bytes left in the file, want %d", len(got), len(b))
		}
	}
	m.SetCapacity(0)
	mustAppend(t, l, makeBatch(t, 1, 1, 1000, 200))
	if got := collect(t, l, 0); len(got) != 2 {
		t.Errorf("%d batches", len(got))
	}
}

// When what a write left can't be cut off either, the log is done.
func TestWriteThatCantBeCutFailsTheLog(t *testing.T) {
	broken := false
	m := newMem(t)
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		switch {
		case broken && op.Kind == vfs.OpWrite:
			return &vfs.Partial{N: 30, Err: syscall.EIO}
		case broken && op.Kind == vfs.OpTruncate:
			return syscall.EIO
		}
		return nil
	})
	l, _ := mustOpen(t, fsys, Settings{}, Recovery{})
	first := makeBatch(t, 0, 1, 1000, 200)
	mustAppend(t, l, first)
	broken = true
	if _, err := l.Append(makeBatch(t, 1, 1, 1000, 200), clock); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	broken = false
	if _, err := l.Append(makeBatch(t, 1, 1, 1000, 200), clock); !errors.Is(err, ErrFailed) {
		t.Errorf("%v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
	l, report := mustOpen(t, m, Settings{}, Recovery{})
	if report.Cut == nil || report.Cut.Bytes != 30 || report.Cut.Cause != nil {
		t.Errorf("%+v", report.Cut)
	}
	checkBatches(t, collect(t, l, 0), []protocol.Batch{first})
}

func TestFailedSyncIsFinal(t *testing.T) {
	fail := true
	fsys := vfs.Inject(newMem(t), func(op vfs.Op) error {
		if fail && op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	l, _ := mustOpen(t, fsys, Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 1, 1000, 200))
	if err := l.Sync(l.End()); !errors.Is(err, ErrFailed) {
		t.Fatalf("%v", err)
	}
	fail = false
	if err := l.Sync(l.End()); !errors.Is(err, ErrFailed) {
		t.Errorf("second fsync: %v", err)
	}
	if l.RecoveryPoint() != 0 {
		t.Errorf("recovery point %d", l.RecoveryPoint())
	}
	if s, err := l.Read(0, 1000, true, 1); err != nil || s.Len == 0 {
		t.Errorf("a failed log is still read: %+v, %v", s, err)
	} else {
		s.Release()
	}
}

// Rolling onto the empty file that an earlier roll left is fine; onto one with content it isn't.
func TestRollOntoLeftover(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 1, 1000, 200))
	put(t, m, "/p/"+FileName(1, ExtLog), nil)
	if base, rolled, err := l.Roll(clock); base != 1 || !rolled || err != nil {
		t.Fatalf("%d, %v, %v", base, rolled, err)
	}
	if base, rolled, err := l.Roll(clock); base != 1 || rolled || err != nil {
		t.Fatalf("roll of an empty segment: %d, %v, %v", base, rolled, err)
	}
	mustAppend(t, l, makeBatch(t, 1, 1, 1000, 200))
	put(t, m, "/p/"+FileName(2, ExtLog), []byte("x"))
	if _, _, err := l.Roll(clock); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
	mustAppend(t, l, makeBatch(t, 2, 1, 1000, 200))
}

// Index entries go to their file only now and then, and readers find them in both places.
func TestIndexTailSpills(t *testing.T) {
	m := newMem(t)
	settings := Settings{IndexIntervalBytes: 0}
	l, _ := mustOpen(t, m, settings, Recovery{})
	const n = 2*tailMax + 100
	for i := range int64(n) {
		mustAppend(t, l, makeBatch(t, i, 1, 1000+i, 80))
	}
	s := l.active()
	if b := s.offsets.body.Load(); b.inFile != 2*tailMax || b.entries() != n-1 {
		t.Fatalf("%d entries in the file, %d in all", b.inFile, b.entries())
	}
	check := func(l *Log) {
		t.Helper()
		for from := range int64(n) {
			s, err := l.Read(from, 1, true, l.End())
			if err != nil || s.Len == 0 {
				t.Fatalf("%d: %v", from, err)
			}
			buf := make([]byte, s.Len)
			s.ReadAt(buf, 0)
			s.Release()
			if got := protocol.Batch(buf).Header().BaseOffset; got != from {
				t.Fatalf("read at %d gave %d", from, got)
			}
			if got, ok, err := l.OffsetAt(1000 + from); !ok || err != nil || got.Offset != from {
				t.Fatalf("time %d gave %+v, %v", 1000+from, got, err)
			}
		}
	}
	check(l)
	if err := l.Quiesce(); err != nil {
		t.Fatal(err)
	}
	if b := s.offsets.body.Load(); b.tail != nil || b.entries() != n-1 {
		t.Fatalf("quiet: %d entries, tail %d", b.entries(), len(b.tail))
	}
	check(l)
	mustAppend(t, l, makeBatch(t, n, 1, 1000+n, 80))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := len(get(t, m, "/p/00000000000000000000.index")); got != n*offsetEntryLen {
		t.Errorf("index has %d bytes", got)
	}
	l, _ = mustOpen(t, m, settings, Recovery{Clean: true})
	check(l)
}

func TestAppendAllocatesNothing(t *testing.T) {
	dir := t.TempDir()
	l, _, err := Open(vfs.OS, dir, Options{Settings: Settings{IndexIntervalBytes: 4096}}, Recovery{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Abandon()
	b := makeBatch(t, 0, 1, 1000, 1000)
	append := func() {
		b.SetBase(l.End(), 0)
		if _, err := l.Append(b, clock); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		append()
	}
	if n := testing.AllocsPerRun(500, append); n > 0 {
		t.Errorf("%v allocations per append", n)
	}
	from := int64(0)
	if n := testing.AllocsPerRun(500, func() {
		s, err := l.Read(from, 1<<20, true, l.End())
		if err != nil || s.Len == 0 {
			t.Fatal(err)
		}
		s.Release()
		from++
	}); n > 0 {
		t.Errorf("%v allocations per read", n)
	}
	if _, err := os.Stat(dir + "/" + FileName(0, ExtLog)); err != nil {
		t.Error(err)
	}
}
