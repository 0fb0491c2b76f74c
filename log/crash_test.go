package log

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// A history drives one log by a seed and remembers what must be true of it: what the owner has been told is durable,
// what its checkpoints say, and every batch that was ever written.
type history struct {
	t        *testing.T
	fs       vfs.FS
	log      *Log
	settings Settings
	rng      *rand.Rand

	batches   []protocol.Batch // of the log, appended and not truncated
	ever      map[string]bool  // every batch that an append was begun for
	point     int64            // the owner's checkpoint of the recovery point
	start     int64            // and of the log start
	trimmed   int64            // least offset that no step in hand gives up
	resetting bool             // all of it is being given up
}

func newHistory(t *testing.T, fsys vfs.FS, seed int) *history {
	return &history{t: t, fs: fsys, rng: seeded(seed), ever: map[string]bool{},
		settings: Settings{SegmentBytes: 600, IndexIntervalBytes: 150, SegmentIndexBytes: 120}}
}

func (h *history) open(r Recovery) error {
	l, _, err := Open(h.fs, "/p", Options{Settings: h.settings}, r, clock)
	if err != nil {
		return err
	}
	h.log = l
	return nil
}

// kept drops the batches at or above the offset from the model.
func (h *history) kept(offset int64) []protocol.Batch {
	list := h.batches
	for len(list) > 0 && list[len(list)-1].Header().LastOffset() >= offset {
		list = list[:len(list)-1]
	}
	return list
}

// step does one operation at random. Errors of injected faults are fine; the model follows what was reported.
func (h *history) step() error {
	l := h.log
	switch k := h.rng.IntN(24); {
	case k < 12:
		b := makeBatch(h.t, l.End(), 1+h.rng.IntN(4), clock.UnixMilli()+h.rng.Int64N(1000), 70+h.rng.IntN(300))
		h.ever[string(b)] = true
		_, err := l.Append(b, clock)
		if err == nil {
			h.batches = append(h.batches[:len(h.batches):len(h.batches)], b)
		}
		return err
	case k < 14:
		err := l.Sync(l.End() - h.rng.Int64N(3))
		h.point = max(h.point, l.RecoveryPoint())
		return err
	case k == 14:
		err := advance(l)
		h.point = max(h.point, l.RecoveryPoint())
		return err
	case k == 15:
		_, _, err := l.Roll(clock)
		return err
	case k == 16:
		return h.truncate()
	case k == 17:
		if err := l.TrimTo(l.Start() + h.rng.Int64N(l.End()-l.Start()+1)); err != nil {
			return err
		}
		if h.rng.IntN(2) == 0 {
			h.start = l.Start()
		}
		return nil
	case k == 18:
		return h.removeBefore()
	case k == 19:
		return l.Quiesce()
	case k == 20:
		return h.reset()
	case k == 21:
		return h.mend()
	default:
		return h.reopen(k == 22)
	}
}

// reset begins the log anew, above or below its end.
func (h *history) reset() error {
	l := h.log
	offset := l.End() + h.rng.Int64N(5)
	if h.rng.IntN(2) == 0 {
		offset = l.Start() + h.rng.Int64N(l.End()-l.Start()+1)
	}
	h.resetting, h.trimmed = true, math.MaxInt64 // what is left is some of the front
	_, err := l.ResetTo(offset, clock)
	if err == nil {
		h.batches, h.point, h.start, h.trimmed, h.resetting = nil, l.RecoveryPoint(), offset, offset, false
	}
	return err
}

// mend builds an index anew that is right.
func (h *history) mend() error {
	segs := *h.log.segments.Load()
	segs[h.rng.IntN(len(segs))].suspect()
	_, err := h.log.Mend()
	return err
}

// reopen stops the log, in order or not, and opens it again.
func (h *history) reopen(clean bool) error {
	l := h.log
	if clean {
		if err := l.Close(); err != nil {
			return err
		}
		h.point = l.RecoveryPoint()
	} else {
		l.Abandon()
	}
	end := l.End()
	if err := h.open(Recovery{Clean: clean, RecoveryPoint: h.point, LogStart: h.start}); err != nil {
		return err
	}
	if h.log.End() != end {
		h.t.Fatalf("opened again (%v), the log ends at %d, not %d", clean, h.log.End(), end)
	}
	h.trimmed = max(h.trimmed, h.log.Start())
	return nil
}

func (h *history) truncate() error {
	l := h.log
	offset := l.Start() + h.rng.Int64N(l.End()-l.Start()+1)
	kept := h.kept(offset)
	h.trimmed = l.Start()
	before := h.point
	h.point = min(h.point, offset)
	if h.rng.IntN(2) == 0 {
		h.point = before // the owner's checkpoint comes after
	}
	_, err := l.TruncateTo(offset, clock)
	if err == nil {
		h.batches = kept
		h.point, h.start = min(h.point, l.RecoveryPoint()), min(h.start, l.Start())
		if want := end(kept, l.End()); l.End() != want {
			h.t.Fatalf("end %d after truncation to %d, want %d", l.End(), offset, want)
		}
	}
	return err
}

// end is the offset behind the last batch, which for an empty list is what the log says.
func end(list []protocol.Batch, empty int64) int64 {
	if len(list) == 0 {
		return empty
	}
	return list[len(list)-1].Header().LastOffset() + 1
}

func (h *history) removeBefore() error {
	l := h.log
	segs := l.Segments()
	base := segs[h.rng.IntN(len(segs))].Base
	h.trimmed = max(h.trimmed, base)
	removed, err := l.RemoveBefore(base)
	if err == nil {
		for len(h.batches) > 0 && h.batches[0].Header().LastOffset() < base {
			h.batches = h.batches[1:]
		}
		if h.rng.IntN(2) == 0 {
			h.start = max(h.start, l.Start())
		}
	}
	for _, r := range removed {
		if h.rng.IntN(2) == 0 {
			if err := r.Unlink(h.fs); err != nil {
				return err
			}
		}
	}
	return err
}

// check opens a copy of the files as after a crash and compares it with the model. durable is the offset below which
// nothing may be missing.
func (h *history) check(m *vfs.Mem, durable int64, what string) {
	h.t.Helper()
	l, report, err := Open(m, "/p", Options{Settings: h.settings}, Recovery{RecoveryPoint: h.point, LogStart: h.start}, clock)
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	defer l.Abandon()
	if l.End() < durable {
		h.t.Fatalf("%s: end %d, durable was %d; %+v", what, l.End(), durable, report)
	}
	got := collect(h.t, l, l.Start())
	next := int64(-1)
	for _, b := range got {
		hdr := b.Header()
		if !h.ever[string(b)] {
			h.t.Fatalf("%s: a batch that was never written: %+v", what, hdr)
		}
		if next >= 0 && hdr.BaseOffset != next {
			h.t.Fatalf("%s: offset %d follows %d; %+v", what, hdr.BaseOffset, next, report)
		}
		next = hdr.LastOffset() + 1
	}
	if next >= 0 && next != l.End() {
		h.t.Fatalf("%s: last batch ends at %d, log at %d", what, next, l.End())
	}
	for _, want := range h.batches {
		hdr := want.Header()
		if hdr.LastOffset() >= durable || hdr.BaseOffset < max(h.trimmed, l.Start()) {
			continue
		}
		s, err := l.Read(hdr.BaseOffset, 1, true, l.End())
		if err != nil {
			h.t.Fatalf("%s: %v", what, err)
		}
		buf := make([]byte, s.Len)
		if s.Len > 0 {
			s.ReadAt(buf, 0)
		}
		s.Release()
		if !bytes.Equal(buf, want) {
			h.t.Fatalf("%s: durable batch %d is gone; %+v", what, hdr.BaseOffset, report)
		}
	}
	checkIndexes(h.t, m, l, what)
	h.checkReopen(m, l, what)
}

// checkIndexes compares the index files with the batches: every entry is one that an index that is built anew would have. But for zeros, which are what a
// loss of power may leave of an index that was just being made anew: reads see them for what they are.
func checkIndexes(t testing.TB, m *vfs.Mem, l *Log, what string) {
	t.Helper()
	for _, s := range l.Segments() {
		positions, times := map[int64]int64{}, map[int64]int64{} // by last offset
		largest, pos := int64(noTime), int64(0)
		data := get(t, m, "/p/"+FileName(s.Base, ExtLog))
		for int64(len(data)) > 0 {
			b, rest, err := protocol.SplitBatch(data)
			if err != nil {
				t.Fatalf("%s: segment %d at %d: %v", what, s.Base, pos, err)
			}
			hdr := b.Header()
			positions[hdr.LastOffset()] = pos
			if hdr.MaxTimestamp > largest {
				largest, times[hdr.LastOffset()] = hdr.MaxTimestamp, hdr.MaxTimestamp
			}
			pos, data = pos+int64(len(b)), rest
		}
		for _, x := range *l.segments.Load() {
			if x.base != s.Base {
				continue
			}
			before := entry{offset: -1}
			for i := range x.offsets.entries() {
				e, err := x.offsets.at(x.offsets.body.Load(), i)
				if e == (entry{offset: s.Base}) {
					continue
				}
				if at, ok := positions[e.offset]; err != nil || !ok || at != e.position || e.offset <= before.offset {
					t.Fatalf("%s: segment %d: entry %d is %+v behind %+v, %v", what, s.Base, i, e, before, err)
				}
				before = e
			}
			before = entry{time: -1}
			for i := range x.times.entries() {
				e, err := x.times.at(x.times.body.Load(), i)
				if e == (entry{offset: s.Base}) {
					continue
				}
				if at, ok := times[e.offset]; err != nil || !ok || at != e.time || e.time <= before.time {
					t.Fatalf("%s: segment %d: time entry %d is %+v behind %+v, %v", what, s.Base, i, e, before, err)
				}
				before = e
			}
		}
	}
}

// checkReopen appends to a recovered log, closes it and opens it cleanly.
func (h *history) checkReopen(m *vfs.Mem, l *Log, what string) {
	h.t.Helper()
	b := makeBatch(h.t, l.End(), 1, clock.UnixMilli(), 80)
	if _, err := l.Append(b, clock); err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	want := collect(h.t, l, l.Start())
	if err := l.Close(); err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	again, report, err := Open(m, "/p", Options{Settings: h.settings}, Recovery{Clean: true, LogStart: l.Start()}, clock)
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	defer again.Abandon()
	if len(report.Scanned) > 0 || again.End() != l.End() {
		h.t.Fatalf("%s: clean start of [%d, %d) gave %d; %+v", what, l.Start(), l.End(), again.End(), report)
	}
	checkBatches(h.t, collect(h.t, again, again.Start()), want)
}

// Power is lost before each single operation on the disk, in several ways each; what survives must be a log without
// a hole that has everything the owner was told is durable.
func TestCrashAtEveryOperation(t *testing.T) {
	eachSeed(t, 40, func(t *testing.T, seed int) {
		m := newMem(t)
		var h *history
		crashes := 0
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			if !op.Kind.Changes() {
				return nil
			}
			for range 2 {
				crashes++
				rng := seeded(seed*100_000 + crashes)
				durable := min(h.point, endOf(h))
				h.check(m.CrashClone(rng), durable, fmt.Sprintf("seed %d, crash %d before %v %s", seed, crashes, op.Kind, op.Name))
			}
			return nil
		})
		h = newHistory(t, fsys, seed)
		if err := h.open(Recovery{}); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if err := h.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		h.log.Abandon()
		if crashes == 0 {
			t.Fatal("no crash")
		}
	})
}

// endOf is what bounds the durable offsets from above while a truncation may be going on.
func endOf(h *history) int64 {
	if h.log == nil || h.resetting {
		return 0
	}
	return h.log.End()
}

// A SIGKILL loses nothing that Append returned for, wherever the recovery point is.
func TestKillLosesNothing(t *testing.T) {
	eachSeed(t, 40, func(t *testing.T, seed int) {
		m := newMem(t)
		h := newHistory(t, m, seed)
		if err := h.open(Recovery{}); err != nil {
			t.Fatal(err)
		}
		for i := range 80 {
			if err := h.step(); err != nil {
				t.Fatal(err)
			}
			if i%8 == 0 {
				h.check(m.CrashClone(nil), h.log.End(), fmt.Sprintf("seed %d, step %d", seed, i))
			}
		}
		h.log.Abandon()
	})
}

// Each operation on the disk fails once. The log then goes on without what failed, or says that it failed; what it
// had acknowledged is there after a restart.
func TestEveryFaultOnce(t *testing.T) {
	faults := []error{syscall.EIO, syscall.ENOSPC, &vfs.Partial{N: 17, Err: syscall.ENOSPC}}
	eachSeed(t, 6, func(t *testing.T, seed int) {
		total := 0
		for at := 1; at == 1 || at <= total; at++ {
			m := newMem(t)
			count := 0
			fault := faults[at%len(faults)]
			var failedOp vfs.Op
			fsys := vfs.Inject(m, func(op vfs.Op) error {
				count++
				if count == at {
					failedOp = op
					return fault
				}
				return nil
			})
			h := newHistory(t, fsys, seed)
			runWithFault(h, m, func() string { return fmt.Sprintf("seed %d, fault %d (%v %s)", seed, at, failedOp.Kind, failedOp.Name) })
			total = max(total, count)
		}
		if total < 100 {
			t.Fatalf("only %d operations", total)
		}
	})
}

func runWithFault(h *history, m *vfs.Mem, what func() string) {
	for range 2 { // the fault may meet the first open
		if err := h.open(Recovery{}); err == nil {
			break
		}
	}
	h.trimmed = 0
	for range 50 {
		err := h.step()
		if h.log.closed.Load() {
			break // it could not be stopped in order, or not be opened again
		}
		failed := h.log.Failed()
		if (failed != nil) != errors.Is(err, ErrFailed) {
			h.t.Fatalf("%s: step says %v, log says %v", what(), err, failed)
		}
		if failed != nil {
			if _, err := h.log.Append(makeBatch(h.t, h.log.End(), 1, 0, 80), clock); !errors.Is(err, ErrFailed) {
				h.t.Fatalf("%s: append to a failed log: %v", what(), err)
			}
			if err := h.log.Sync(h.log.End()); !errors.Is(err, ErrFailed) && h.log.End() > h.log.RecoveryPoint() {
				h.t.Fatalf("%s: fsync was tried again: %v", what(), err)
			}
			break
		}
	}
	failed := h.log.Failed() != nil
	h.log.Abandon()
	h.start = 0
	durable := h.log.End()
	if failed && strings.Contains(h.log.Failed().Error(), "truncate") {
		durable = min(durable, h.point)
	}
	if h.resetting {
		durable = 0
	}
	h.check(m.CrashClone(nil), durable, what())
}
