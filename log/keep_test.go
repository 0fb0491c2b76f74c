package log

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// damage is a log of some segments, closed without a sync, in which bytes are changed.
type damage struct {
	t       *testing.T
	fs      *vfs.Mem
	batches []protocol.Batch
	at      map[int64]string // base of each segment -> its .log
}

var keepSettings = Settings{SegmentBytes: 1000, IndexIntervalBytes: 200}

func newDamage(t *testing.T) *damage {
	d := &damage{t: t, fs: newMem(t), at: map[int64]string{}}
	l, _ := mustOpen(t, d.fs, keepSettings, Recovery{})
	for range 12 { // four batches a segment
		b := makeBatch(t, l.End(), 3, clock.UnixMilli(), 240)
		mustAppend(t, l, b)
		d.batches = append(d.batches, b)
	}
	for _, s := range l.Segments() {
		d.at[s.Base] = "/p/" + FileName(s.Base, ExtLog)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(d.at) != 3 {
		t.Fatal(d.at)
	}
	return d
}

// change rewrites a segment's .log.
func (d *damage) change(base int64, change func([]byte) []byte) {
	put(d.t, d.fs, d.at[base], change(get(d.t, d.fs, d.at[base])))
}

func (d *damage) kept() map[string]int {
	sizes := map[string]int{}
	for _, name := range list(d.t, d.fs) {
		if strings.Contains(name, SuffixCut) {
			sizes[name] = len(get(d.t, d.fs, "/p/"+name))
		}
	}
	return sizes
}

// TestCutKeepsWholeBatches: recovery ends the log at the first bad place, and what is whole behind it is in files beside.
func TestCutKeepsWholeBatches(t *testing.T) {
	n := len(makeBatch(t, 0, 3, clock.UnixMilli(), 240))
	flip := func(i int) func([]byte) []byte {
		return func(b []byte) []byte { b[i] ^= 0x40; return b }
	}
	for name, tt := range map[string]struct {
		base    int64
		change  func([]byte) []byte
		end     int64
		kept    map[string]int // size by name
		batches int64
	}{
		"flipped payload, more behind": {0, flip(n + 100), 3, map[string]int{FileName(3, ".log.cut"): 3 * n, FileName(12, ".log.cut"): 4 * n, FileName(24, ".log.cut"): 4 * n}, 10},
		"flipped length, more behind":  {12, flip(2*n + 10), 18, map[string]int{FileName(18, ".log.cut"): 2 * n, FileName(24, ".log.cut"): 4 * n}, 5},
		"flipped offset, more behind":  {24, flip(0), 24, map[string]int{FileName(24, ".log.cut"): 4 * n}, 3},
		"flipped payload, the last":    {24, flip(4*n - 1), 33, nil, 0},
		"torn tail":                    {24, func(b []byte) []byte { return b[:4*n-10] }, 33, nil, 0},
		"zeros in place of the tail":   {24, func(b []byte) []byte { clear(b[3*n+30:]); return b }, 33, nil, 0},
		"zeros behind":                 {24, func(b []byte) []byte { return append(b, make([]byte, 5000)...) }, 36, nil, 0},
		"garbage behind":               {24, func(b []byte) []byte { return append(b, bytes.Repeat([]byte{2, 0, 0, 0, 60}, 900)...) }, 36, nil, 0},
		"a hole of zeros":              {24, func(b []byte) []byte { clear(b[n : 2*n+20]); return b }, 27, map[string]int{FileName(27, ".log.cut"): 3 * n}, 1},
		"a batch twice":                {24, func(b []byte) []byte { return append(b, b[n:2*n]...) }, 36, nil, 0},
		"a batch is missing":           {12, func(b []byte) []byte { return append(b[:n:n], b[2*n:]...) }, 36, nil, 0},
		"the end is missing, segments behind": {12, func(b []byte) []byte { return b[:3*n] }, 21,
			map[string]int{FileName(24, ".log.cut"): 4 * n}, 4},
		"a segment is empty, segments behind": {12, func(b []byte) []byte { return nil }, 12, map[string]int{FileName(24, ".log.cut"): 4 * n}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDamage(t)
			d.change(tt.base, tt.change)
			l, report := mustOpen(t, d.fs, keepSettings, Recovery{})
			if l.End() != tt.end {
				t.Errorf("end %d, want %d: %+v", l.End(), tt.end, report)
			}
			if got := d.kept(); fmt.Sprint(got) != fmt.Sprint(tt.kept) {
				t.Errorf("kept %v, want %v", got, tt.kept)
			}
			c := report.Cut
			if c != nil && (c.Batches != tt.batches || c.Records != 3*tt.batches || len(c.Kept) != len(tt.kept)) || c == nil && tt.batches > 0 {
				t.Errorf("%+v, want %d batches", c, tt.batches)
			}
			// What is kept stays so, and is in nobody's way.
			mustAppend(t, l, makeBatch(t, l.End(), 1, clock.UnixMilli(), 80))
			end := l.End()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l, report = mustOpen(t, d.fs, keepSettings, Recovery{})
			if l.End() != end || report.Cut != nil || fmt.Sprint(d.kept()) != fmt.Sprint(tt.kept) {
				t.Errorf("opened again: end %d, want %d; %+v; kept %v", l.End(), end, report.Cut, d.kept())
			}
		})
	}
}

// TestCutAgain: damage at the same offset has its own files each time.
func TestCutAgain(t *testing.T) {
	d := newDamage(t)
	for i := range 3 {
		d.change(24, func(b []byte) []byte { b[100] ^= 1; return b })
		l, _ := mustOpen(t, d.fs, keepSettings, Recovery{})
		for k := range 4 {
			mustAppend(t, l, makeBatch(t, l.End(), 3, clock.UnixMilli()+int64(100*i+k), 240))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{FileName(24, ".log.cut"), FileName(24, ".log.cut.1"), FileName(24, ".log.cut.2")}
	if got := d.kept(); len(got) != 3 || got[want[0]] == 0 || got[want[1]] == 0 || got[want[2]] == 0 {
		t.Errorf("kept %v, want %v", got, want)
	}
}

// TestCrashDuringCut: whatever the disk has after a loss of power at any moment of the cut, the next start comes to the same log, and all that
// was whole is in the log or in files that were kept.
func TestCrashDuringCut(t *testing.T) {
	d := newDamage(t)
	d.change(0, func(b []byte) []byte { b[len(b)/4+100] ^= 1; return b })
	for _, name := range list(t, d.fs) {
		f, err := d.fs.OpenFile("/p/"+name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close(), d.fs.SyncDir("/p")); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range 20 {
		for op := 0; ; op++ {
			crashed, done := openUntil(t, d.fs.CrashClone(seeded(seed)), op, seed)
			l, _ := mustOpen(t, crashed, keepSettings, Recovery{})
			checkNothingLost(t, d, crashed, l, fmt.Sprintf("seed %d, operation %d", seed, op))
			l.Abandon()
			if done {
				break
			}
		}
	}
}

// openUntil opens a damaged log up to the n-th operation on the file system, and gives the disk as it may be after a loss of power
// then. done reports that there are no more operations.
func openUntil(t *testing.T, m *vfs.Mem, n, seed int) (crashed *vfs.Mem, done bool) {
	t.Helper()
	done = true
	ops := 0
	injected := vfs.Inject(m, func(vfs.Op) error {
		if ops == n {
			crashed, done = m.CrashClone(seeded(seed)), false
		}
		ops++
		return nil
	})
	l, _, err := Open(injected, "/p", Options{Settings: keepSettings}, Recovery{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	l.Abandon()
	if done {
		crashed = m.CrashClone(seeded(seed))
	}
	return crashed, done
}

func checkNothingLost(t *testing.T, d *damage, m *vfs.Mem, l *Log, when string) {
	t.Helper()
	if l.End() != 3 {
		t.Fatalf("%s: end %d", when, l.End())
	}
	var all []byte
	for _, name := range list(t, m) {
		if strings.Contains(name, SuffixCut) && !strings.HasSuffix(name, ".tmp") {
			all = append(all, get(t, m, "/p/"+name)...)
		}
	}
	for i, b := range d.batches {
		if i > 1 && !bytes.Contains(all, b) {
			t.Fatalf("%s: batch %d is neither in the log nor kept: %v", when, i, slices.Sorted(slices.Values(list(t, m))))
		}
	}
}
