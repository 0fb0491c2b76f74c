package log

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// rewriteSettings makes many small segments.
var rewriteSettings = Settings{SegmentBytes: 600, IndexIntervalBytes: 150}

// keepOnly is a Keep that keeps the batches in the list.
func keepOnly(list []protocol.Batch) func(protocol.Batch) (protocol.Batch, error) {
	return func(b protocol.Batch) (protocol.Batch, error) {
		if slices.ContainsFunc(list, func(k protocol.Batch) bool { return string(k) == string(b) }) {
			return b, nil
		}
		return nil, nil
	}
}

// within are the batches of the segments with bases in [from, to).
func within(batches []protocol.Batch, from, to int64) (list []protocol.Batch) {
	for _, b := range batches {
		if o := b.Header().BaseOffset; o >= from && o < to {
			list = append(list, b)
		}
	}
	return list
}

func mustRewrite(t testing.TB, l *Log, w Rewriting) Rewritten {
	t.Helper()
	w.IndexIntervalBytes = rewriteSettings.IndexIntervalBytes
	done, err := l.Rewrite(w)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// The new segment is, in all its files, what appending its batches would have made.
func TestRewriteIsAppending(t *testing.T) {
	for seed := range 60 {
		rng := seeded(seed)
		m := newMem(t)
		l, _ := mustOpen(t, m, rewriteSettings, Recovery{})
		batches := fill(t, l, rng, 30, 300)
		segs := l.Segments()
		i := rng.IntN(len(segs) - 1)
		n := 1 + rng.IntN(min(3, len(segs)-1-i))
		from, to := segs[i].Base, segs[i+n].Base
		var kept []protocol.Batch
		for _, b := range within(batches, from, to) {
			if rng.IntN(3) > 0 {
				kept = append(kept, b)
			}
		}
		done := mustRewrite(t, l, Rewriting{From: from, To: to, Keep: keepOnly(kept), BufferBytes: 1 + rng.IntN(500)})
		if want := len(kept) < len(within(batches, from, to)) || n > 1; done.Changed != want || len(done.Gone) != n-1 && want {
			t.Fatalf("seed %d: %+v", seed, done)
		}
		want := slices.Concat(within(batches, 0, from), kept, within(batches, to, l.End()))
		checkBatches(t, collect(t, l, 0), want)
		checkTimes(t, l, want)

		alone := newMem(t)
		single, _ := mustOpen(t, alone, Settings{IndexIntervalBytes: 150, SegmentMs: forever}, Recovery{LogStart: from})
		for _, b := range kept {
			mustAppend(t, single, b)
		}
		if err := single.Close(); err != nil {
			t.Fatal(err)
		}
		for _, ext := range []string{ExtLog, ExtIndex, ExtTimeIndex} {
			name := "/p/" + FileName(from, ext)
			if len(kept) == 0 {
				put(t, alone, name, nil) // an index without entries needs no file
			}
			if got, want := get(t, m, name), get(t, alone, name); string(got) != string(want) {
				t.Fatalf("seed %d: %s: %x, want %x", seed, name, got, want)
			}
		}
		batches = append(want, fill(t, l, rng, 10, 300)...)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, report := mustOpen(t, m, rewriteSettings, Recovery{Clean: true})
		checkBatches(t, collect(t, again, 0), batches)
		if len(report.Scanned) > 0 || len(report.Others) > 0 {
			t.Fatalf("%+v", report)
		}
		scanned, report := mustOpen(t, m.CrashClone(nil), rewriteSettings, Recovery{AllowGaps: true})
		if checkBatches(t, collect(t, scanned, 0), batches); report.Cut != nil {
			t.Fatalf("%+v", report)
		}
	}
}

// checkTimes looks each batch up by offset and by time.
func checkTimes(t *testing.T, l *Log, want []protocol.Batch) {
	t.Helper()
	for i, b := range want {
		h := b.Header()
		s, err := l.Read(h.BaseOffset, 1, true, l.End())
		if err != nil || s.Len != len(b) {
			t.Fatalf("read at %d: %d bytes, %v", h.BaseOffset, s.Len, err)
		}
		s.Release()
		first := i
		for k, other := range want[:i+1] {
			if other.Header().MaxTimestamp >= h.MaxTimestamp {
				first = k
				break
			}
		}
		found, ok, err := l.OffsetAt(h.MaxTimestamp)
		if f := want[first].Header(); err != nil || !ok || found.Offset < f.BaseOffset || found.Offset > f.LastOffset() {
			t.Fatalf("timestamp %d: %+v, want within %+v; %v", h.MaxTimestamp, found, f, err)
		}
	}
}

// Nothing is written for a segment that stays as it is; merging, or another transaction index, is a reason to.
func TestRewriteNothing(t *testing.T) {
	m := newMem(t)
	writes := 0
	l, _ := mustOpen(t, vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind.Changes() {
			writes++
		}
		return nil
	}), rewriteSettings, Recovery{})
	batches := fill(t, l, seeded(1), 20, 300)
	segs := l.Segments()
	all := func(b protocol.Batch) (protocol.Batch, error) { return b, nil }
	writes = 0
	if done := mustRewrite(t, l, Rewriting{From: segs[0].Base, To: segs[1].Base, Keep: all}); done.Changed || done.Read != segs[0].Size || done.Written > 0 {
		t.Errorf("%+v", done)
	}
	if writes > 0 {
		t.Errorf("%d writes", writes)
	}
	done := mustRewrite(t, l, Rewriting{From: segs[0].Base, To: segs[1].Base, Keep: all,
		Finish: func() ([]byte, bool, error) { return []byte("index"), true, nil }})
	if !done.Changed || string(get(t, m, "/p/"+FileName(0, ExtTxnIndex))) != "index" {
		t.Errorf("%+v", done)
	}
	if done := mustRewrite(t, l, Rewriting{From: segs[0].Base, To: segs[2].Base, Keep: all}); !done.Changed || !slices.Equal(done.Gone, []int64{segs[1].Base}) {
		t.Errorf("%+v", done)
	}
	if names := list(t, m); slices.Contains(names, FileName(0, ExtTxnIndex)) {
		t.Error(names)
	}
	checkBatches(t, collect(t, l, 0), batches)
	again, _ := mustOpen(t, m.CrashClone(nil), rewriteSettings, Recovery{})
	checkBatches(t, collect(t, again, 0), batches)
}

// The new segment counts as last written when the newest old one was: retention of records without timestamps goes by it.
func TestRewriteKeepsTimes(t *testing.T) {
	m := newMem(t)
	now := clock
	m.SetClock(func() time.Time { return now })
	l, _ := mustOpen(t, m, rewriteSettings, Recovery{})
	for range 12 {
		now = now.Add(time.Second)
		mustAppend(t, l, makeBatch(t, l.End(), 1, -1, 250))
	}
	segs := l.Segments()
	want, err := l.LargestTimestamp(segs[1].Base)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	none := func(protocol.Batch) (protocol.Batch, error) { return nil, nil }
	mustRewrite(t, l, Rewriting{From: 0, To: segs[2].Base, Keep: none})
	if got, err := l.LargestTimestamp(0); err != nil || got != want {
		t.Errorf("%d, want %d, %v", got, want, err)
	}
	if st, err := m.Stat("/p/" + FileName(0, ExtLog)); err != nil || st.Size() != 0 || st.ModTime().UnixMilli() != want {
		t.Errorf("%+v, %v", st, err)
	}
	if ts, err := l.FirstTimestamp(0); ts != -1 || err != nil {
		t.Error(ts, err)
	}
}

// What cannot be trusted isn't written anew, and the log stays as it is.
func TestRewriteRefusesDamage(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, rewriteSettings, Recovery{})
	batches := fill(t, l, seeded(1), 20, 300)
	segs := l.Segments()
	f, err := m.OpenFile("/p/"+FileName(segs[1].Base, ExtLog), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 100); err != nil {
		t.Fatal(err)
	}
	before := list(t, m)
	none := func(protocol.Batch) (protocol.Batch, error) { return nil, nil }
	_, err = l.Rewrite(Rewriting{From: 0, To: segs[2].Base, Keep: none})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), FileName(segs[1].Base, ExtLog)) || l.Failed() != nil {
		t.Error(err)
	}
	if after := list(t, m); !slices.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
	boom := errors.New("boom")
	for name, w := range map[string]Rewriting{
		"keep":   {Keep: func(protocol.Batch) (protocol.Batch, error) { return nil, boom }},
		"finish": {Keep: none, Finish: func() ([]byte, bool, error) { return nil, false, boom }},
		"pace":   {Keep: none, Pace: func(int) error { return boom }},
	} {
		w.From, w.To = segs[2].Base, segs[4].Base
		if _, err := l.Rewrite(w); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, w := range []Rewriting{{From: 1, To: segs[1].Base}, {From: 0, To: segs[1].Base - 1}, {From: segs[1].Base, To: l.End()}, {From: l.active().base, To: l.End()}} {
		if _, err := l.Rewrite(w); !errors.Is(err, ErrReplaced) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if after := list(t, m); !slices.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
	checkBatches(t, within(collect(t, l, segs[2].Base), segs[2].Base, l.End()), within(batches, segs[2].Base, l.End()))
}

var errTruncated = errors.New("truncated")

// Retention, truncation, the end of the log: the rewriting gives way, and leaves nothing.
func TestRewriteGivesWay(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *Log, segs []Segment) error
		want error
	}{
		{"retention", func(l *Log, segs []Segment) error { _, err := l.RemoveBefore(segs[1].Base); return err }, ErrReplaced},
		{"truncation", func(l *Log, segs []Segment) error { _, err := l.TruncateTo(segs[1].Base, clock); return err }, ErrReplaced},
		{"reset", func(l *Log, segs []Segment) error { _, err := l.ResetTo(5, clock); return err }, ErrReplaced},
		{"truncation behind", func(l *Log, segs []Segment) error {
			_, err := l.TruncateTo(l.End()-1, clock)
			return err
		}, errTruncated},
		{"close", func(l *Log, segs []Segment) error { return l.Close() }, ErrClosed},
		{"roll", func(l *Log, segs []Segment) error { _, _, err := l.Roll(clock); return err }, nil},
	} {
		m := newMem(t)
		l, _ := mustOpen(t, m, rewriteSettings, Recovery{})
		batches := fill(t, l, seeded(1), 20, 300)
		segs := l.Segments()
		before, truncations := l.files.Open(), l.Truncations()
		_, err := l.Rewrite(Rewriting{From: 0, To: segs[2].Base,
			Pace: func(n int) error {
				if n == 0 && l.Truncations() != truncations && tt.want == errTruncated {
					return errTruncated
				}
				return nil
			},
			Keep:   func(b protocol.Batch) (protocol.Batch, error) { return nil, nil },
			Finish: func() ([]byte, bool, error) { return []byte("index"), true, tt.do(l, segs) },
		})
		if !errors.Is(err, tt.want) || err != nil && tt.want == nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.name == "close" {
			l, _ = mustOpen(t, m, rewriteSettings, Recovery{})
			checkBatches(t, collect(t, l, 0), batches)
		}
		for _, name := range list(t, m) {
			if strings.HasSuffix(name, SuffixCleaned) || strings.HasSuffix(name, SuffixSwap) {
				t.Errorf("%s: %s is left", tt.name, name)
			}
		}
		if tt.want == nil {
			checkBatches(t, collect(t, l, 0), within(batches, segs[2].Base, l.End()))
		}
		offset, ok := l.TakeTruncated()
		if _, again := l.TakeTruncated(); ok != (l.Truncations() > 0) || ok && offset > l.End() || again {
			t.Errorf("%s: truncated to %d, %v", tt.name, offset, ok)
		}
		mustAppend(t, l, makeBatch(t, l.End(), 1, 1, 80))
		if open := l.files.Open(); open > before+3 {
			t.Errorf("%s: %d files are open, %d were", tt.name, open, before)
		}
	}
}

// A full disk costs a rewriting and nothing else.
func TestRewriteWithoutSpace(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, rewriteSettings, Recovery{})
	batches := fill(t, l, seeded(1), 20, 300)
	segs := l.Segments()
	before := list(t, m)
	_, used, _ := m.Usage("/")
	m.SetCapacity(1<<40 - used + 300)
	w := Rewriting{From: 0, To: segs[3].Base, Keep: keepOnly(batches), IndexIntervalBytes: 150}
	if _, err := l.Rewrite(w); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if after := list(t, m); !slices.Equal(before, after) || l.Failed() != nil {
		t.Errorf("%v, then %v; %v", before, after, l.Failed())
	}
	checkBatches(t, collect(t, l, 0), batches)
	m.SetCapacity(0)
	if _, err := l.Rewrite(w); err != nil {
		t.Fatal(err)
	}
	checkBatches(t, collect(t, l, 0), batches)
}
