package log

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"oncelog/internal/vfs"
)

// After a truncation the log goes on as one that never had what was cut: files and timestamps are those of a log that
// got the same batches.
func TestTruncateThenAppend(t *testing.T) {
	settings := Settings{SegmentBytes: 700, IndexIntervalBytes: 100}
	for seed := range 40 {
		rng := seeded(seed)
		m := newMem(t)
		l, _ := mustOpen(t, m, settings, Recovery{})
		batches := fill(t, l, rng, 20, 300)
		at := rng.IntN(len(batches))
		offset := batches[at].Header().BaseOffset
		removed, err := l.TruncateTo(offset, clock)
		if err != nil {
			t.Fatal(err)
		}
		if l.End() != offset || l.RecoveryPoint() > offset {
			t.Fatalf("end %d, recovery point %d, want %d", l.End(), l.RecoveryPoint(), offset)
		}
		for i, r := range removed {
			if r.Base <= l.active().base || i > 0 && r.Base != removed[i-1].Next || len(r.Files) == 0 {
				t.Fatalf("removed %+v", removed)
			}
		}
		checkBatches(t, collect(t, l, 0), batches[:at])
		batches = append(batches[:at:at], fill(t, l, rng, 10, 300)...)
		checkBatches(t, collect(t, l, 0), batches)
		want := TimestampOffset{Timestamp: -1}
		for _, b := range batches {
			h := b.Header()
			for i := range int64(h.NumRecords) {
				if ts := h.BaseTimestamp + i; ts > want.Timestamp {
					want = TimestampOffset{h.BaseOffset + i, ts, 3}
				}
			}
		}
		if got, ok, err := l.MaxTimestamp(); !ok || err != nil || got != want {
			t.Fatalf("seed %d: max timestamp %+v, want %+v", seed, got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, report := mustOpen(t, m, settings, Recovery{})
		if report.Cut != nil {
			t.Fatalf("seed %d: %+v", seed, report.Cut)
		}
		checkBatches(t, collect(t, l, 0), batches)
	}
}

func TestTruncateWithinBatch(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 4, 1000, 200))
	mustAppend(t, l, makeBatch(t, 4, 4, 1000, 200))
	for _, step := range []struct{ to, end int64 }{{9, 8}, {8, 8}, {6, 4}, {4, 4}, {1, 0}} {
		if _, err := l.TruncateTo(step.to, clock); err != nil || l.End() != step.end {
			t.Errorf("to %d: end %d, want %d; %v", step.to, l.End(), step.end, err)
		}
	}
	mustAppend(t, l, makeBatch(t, 0, 4, 1000, 200))
	// The start may lie within the batch that goes.
	if err := l.TrimTo(2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TruncateTo(3, clock); err != nil || l.Start() != 0 || l.End() != 0 {
		t.Errorf("[%d, %d), %v", l.Start(), l.End(), err)
	}
}

func TestTruncateBelowFirstSegmentResets(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, Settings{SegmentBytes: 400}, Recovery{LogStart: 50})
	fill(t, l, seeded(1), 10, 200)
	removed, err := l.TruncateTo(20, clock)
	if err != nil || l.Start() != 20 || l.End() != 20 || len(removed) < 3 {
		t.Fatalf("[%d, %d), %d removed, %v", l.Start(), l.End(), len(removed), err)
	}
	if !slices.IsSortedFunc(removed, func(a, b Removed) int { return int(a.Base - b.Base) }) || removed[0].Base != 50 {
		t.Errorf("removed %+v", removed)
	}
	mustAppend(t, l, makeBatch(t, 20, 1, 1000, 200))
	if _, err := l.ResetTo(1000, clock); err != nil || l.Start() != 1000 {
		t.Fatalf("[%d, %d), %v", l.Start(), l.End(), err)
	}
	batches := fill(t, l, seeded(2), 5, 200)
	l.Abandon()
	l, _ = mustOpen(t, m, Settings{SegmentBytes: 400}, Recovery{})
	checkBatches(t, collect(t, l, l.Start()), batches)
}

func TestTrimAndRemove(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, Settings{SegmentBytes: 450}, Recovery{})
	for i := range int64(5) {
		mustAppend(t, l, makeBatch(t, i, 1, 1000+i, 200))
	}
	if err := l.TrimTo(6); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("trim behind the end: %v", err)
	}
	if err := l.TrimTo(3); err != nil || l.Start() != 3 {
		t.Errorf("start %d, %v", l.Start(), err)
	}
	if err := l.TrimTo(1); err != nil || l.Start() != 3 {
		t.Errorf("start %d, %v", l.Start(), err)
	}
	if ts, err := l.LargestTimestamp(0); err != nil || ts != 1001 {
		t.Errorf("%d, %v", ts, err)
	}
	for _, base := range []int64{-1, 1, 3, 5} {
		if _, err := l.RemoveBefore(base); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("remove before %d: %v", base, err)
		}
		if _, err := l.LargestTimestamp(base); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("timestamp of %d: %v", base, err)
		}
	}
	size := l.Size()
	s, err := l.Read(3, 1000, true, 5)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := l.RemoveBefore(4)
	if err != nil || len(removed) != 2 || removed[1].Base != 2 || removed[1].Next != 4 || l.Start() != 4 {
		t.Fatalf("%+v, start %d, %v", removed, l.Start(), err)
	}
	if got := l.Size(); got != size-removed[0].Size-removed[1].Size {
		t.Errorf("size %d", got)
	}
	for _, r := range removed {
		if err := r.Unlink(m); err != nil {
			t.Fatal(err)
		}
		if err := r.Unlink(m); err != nil {
			t.Errorf("unlinking again: %v", err)
		}
	}
	// The slice outlives its segment.
	var got bytes.Buffer
	if n, err := s.WriteTo(&got); n != int64(s.Len) || n == 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.Release()
	if fmt.Sprint(list(t, m)) != "[00000000000000000004.log]" {
		t.Errorf("files %v", list(t, m))
	}
	// All of it: the owner rolls first.
	base, rolled, err := l.Roll(clock)
	if base != 5 || !rolled || err != nil {
		t.Fatalf("%d, %v, %v", base, rolled, err)
	}
	if removed, err = l.RemoveBefore(base); len(removed) != 1 || err != nil || l.Start() != 5 || l.End() != 5 {
		t.Errorf("%+v, [%d, %d), %v", removed, l.Start(), l.End(), err)
	}
}

// The recovery point follows Sync, and only whole segments' indexes are synced with it.
func TestSyncTouchesWhatIsNeeded(t *testing.T) {
	var synced []string
	fsys := vfs.Inject(newMem(t), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir {
			synced = append(synced, op.Name[len(op.Name)-2:])
		}
		return nil
	})
	l, _ := mustOpen(t, fsys, Settings{SegmentBytes: 450, IndexIntervalBytes: 1000}, Recovery{})
	step := func(upTo int64, want string, point int64) {
		t.Helper()
		synced = nil
		if err := l.Sync(upTo); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(synced) != want || l.Durable() != min(upTo, l.End()) || l.RecoveryPoint() != point {
			t.Errorf("synced %v, want %s; durable %d, recovery point %d", synced, want, l.Durable(), l.RecoveryPoint())
		}
	}
	mustAppend(t, l, makeBatch(t, 0, 1, 1000, 200))
	step(1, "[og /p]", 0)
	step(1, "[]", 0)
	mustAppend(t, l, makeBatch(t, 1, 1, 1000, 200))
	step(2, "[og]", 1)
	mustAppend(t, l, makeBatch(t, 2, 1, 1000, 200))
	mustAppend(t, l, makeBatch(t, 3, 1, 1000, 200))
	step(4, "[og ex ex og /p]", 3)
	if _, _, err := l.Roll(clock); err != nil {
		t.Fatal(err)
	}
	step(4, "[og ex ex /p]", 4)
	step(4, "[]", 4)
	mustAppend(t, l, makeBatch(t, 4, 1, 1000, 200))
	mustAppend(t, l, makeBatch(t, 5, 1, 1000, 200))
	mustAppend(t, l, makeBatch(t, 6, 1, 1000, 200))
	step(5, "[og ex ex /p]", 5)
	step(99, "[og]", 6)
	if err := l.Close(); err != nil || l.RecoveryPoint() != 7 {
		t.Errorf("closed: recovery point %d, %v", l.RecoveryPoint(), err)
	}
}
