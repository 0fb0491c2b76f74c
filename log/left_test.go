package log

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"oncelog/internal/vfs"
)

// leftLog is a log that was closed in order, and what its owner knows of it.
func leftLog(t *testing.T) (*damage, []Segment) {
	t.Helper()
	d := newDamage(t)
	l, _ := mustOpen(t, d.fs, keepSettings, Recovery{Clean: true})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return d, l.Segments()
}

// TestLostAfterCleanShutdown: what is there no longer after a clean shutdown is told, and nothing is changed.
func TestLostAfterCleanShutdown(t *testing.T) {
	name := func(base int64, ext string) string { return "/p/" + FileName(base, ext) }
	cutBy := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
	remove := func(name string) func(*damage) {
		return func(d *damage) {
			if err := d.fs.Remove(name); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	change := func(base int64, f func([]byte) []byte) func(*damage) { return func(d *damage) { d.change(base, f) } }
	for what, tt := range map[string]struct {
		damage func(*damage)
		says   string
	}{
		"the first segment is missing":  {remove(name(0, ExtLog)), FileName(0, ExtLog) + " is missing"},
		"one in the middle is missing":  {remove(name(12, ExtLog)), FileName(12, ExtLog) + " is missing"},
		"the last segment is missing":   {remove(name(24, ExtLog)), "the offsets from 24 to 35"},
		"one in the middle is shorter":  {change(12, cutBy(1)), "bytes, it had"},
		"one in the middle is longer":   {change(12, func(b []byte) []byte { return append(b, 0) }), "bytes, it had"},
		"the last is shorter":           {change(24, cutBy(240)), "bytes, it had"},
		"the end of the last is zero":   {change(24, func(b []byte) []byte { clear(b[len(b)-220:]); return b }), "offset 33"},
		"a header of the last is wrong": {change(24, func(b []byte) []byte { b[len(b)*3/4+16] = 7; return b }), "offset 33"},
		"one that nobody knows": {func(d *damage) { put(d.t, d.fs, name(100, ExtLog), get(d.t, d.fs, name(24, ExtLog))) },
			"wasn't there"},
	} {
		t.Run(what, func(t *testing.T) {
			d, left := leftLog(t)
			tt.damage(d)
			before := contents(t, d.fs)
			_, _, err := Open(d.fs, "/p", Options{Settings: keepSettings}, Recovery{Clean: true, Segments: left}, clock)
			if !errors.Is(err, ErrLost) || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.says) {
				t.Error(err)
			}
			checkContents(t, d.fs, before)
		})
	}
}

// contents is all files of /p, by name.
func contents(t *testing.T, m *vfs.Mem) map[string]string {
	files := map[string]string{}
	for _, name := range list(t, m) {
		files[name] = string(get(t, m, "/p/"+name))
	}
	return files
}

// checkContents compares the files of /p with what they were.
func checkContents(t *testing.T, m *vfs.Mem, want map[string]string) {
	t.Helper()
	got := contents(t, m)
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
	for name, data := range want {
		if d, ok := got[name]; !ok || d != data {
			t.Errorf("%s is there: %t, has %d bytes, had %d", name, ok, len(d), len(data))
		}
	}
}

// TestRebuiltAfterCleanShutdown: indexes are built anew where they aren't what they were, and the report says why.
func TestRebuiltAfterCleanShutdown(t *testing.T) {
	for what, tt := range map[string]struct {
		ext    string
		change func([]byte) []byte // nil removes the file
		says   string
	}{
		"missing index":            {ExtIndex, nil, ".index is missing"},
		"missing time index":       {ExtTimeIndex, nil, ".timeindex is missing"},
		"index of an odd size":     {ExtIndex, func(b []byte) []byte { return b[:len(b)-3] }, "no number of entries"},
		"index with an entry less": {ExtIndex, func(b []byte) []byte { return b[:len(b)-offsetEntryLen] }, "it had"},
		"empty index":              {ExtIndex, func(b []byte) []byte { return nil }, "it had"},
		"empty time index":         {ExtTimeIndex, func(b []byte) []byte { return nil }, "it had"},
		"far too long an index":    {ExtIndex, func(b []byte) []byte { return append(b, make([]byte, 800)...) }, "more entries"},
	} {
		for _, base := range []int64{0, 12, 24} {
			t.Run(fmt.Sprint(what, base), func(t *testing.T) {
				d, left := leftLog(t)
				want := contents(t, d.fs)
				name := "/p/" + FileName(base, tt.ext)
				if tt.change == nil {
					if err := d.fs.Remove(name); err != nil {
						t.Fatal(err)
					}
				} else {
					put(t, d.fs, name, tt.change(get(t, d.fs, name)))
				}
				l, report := mustOpen(t, d.fs, keepSettings, Recovery{Clean: true, Segments: left})
				if len(report.Rebuilt) != 1 || report.Rebuilt[0].Base != base || !strings.Contains(report.Rebuilt[0].Cause, tt.says) {
					t.Errorf("%+v", report.Rebuilt)
				}
				checkBatches(t, collect(t, l, 0), d.batches)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, d.fs, want)
			})
		}
	}
}

// TestLongerAfterCleanShutdown: bytes behind the end of the last segment are no loss, and are cut off.
func TestLongerAfterCleanShutdown(t *testing.T) {
	d, left := leftLog(t)
	d.change(24, func(b []byte) []byte { return append(b, 1, 2, 3) })
	l, report := mustOpen(t, d.fs, keepSettings, Recovery{Clean: true, Segments: left})
	if l.End() != 36 || report.Cut == nil || report.Cut.Bytes != 3 {
		t.Errorf("end %d, %+v", l.End(), report.Cut)
	}
}

// TestMend: reads do without wrong entries of an index, remember it, and Mend makes the index right.
func TestMend(t *testing.T) {
	for what, change := range map[string]func([]byte) []byte{
		"zeros":            func(b []byte) []byte { clear(b); return b },
		"another offset":   func(b []byte) []byte { b[3]++; return b },
		"another position": func(b []byte) []byte { b[6] ^= 1; return b },
		"beyond the end":   func(b []byte) []byte { b[4] = 0x70; return b },
	} {
		for _, base := range []int64{0, 24} {
			t.Run(fmt.Sprint(what, base), func(t *testing.T) {
				d, left := leftLog(t)
				want := contents(t, d.fs)
				name := "/p/" + FileName(base, ExtIndex)
				put(t, d.fs, name, change(get(t, d.fs, name)))
				l, report := mustOpen(t, d.fs, keepSettings, Recovery{Clean: true, Segments: left})
				for offset := int64(0); offset < 36; offset++ {
					s, err := l.Read(offset, 1, true, 36)
					if err != nil || s.Len == 0 {
						t.Fatal(offset, s, err)
					}
					s.Release()
				}
				if l.Suspicious() == (len(report.Rebuilt) > 0) {
					t.Errorf("suspicious %t, %+v", l.Suspicious(), report)
				}
				bases, err := l.Mend()
				if err != nil || len(bases) != 1-len(report.Rebuilt) || l.Suspicious() {
					t.Errorf("mended %v, %v", bases, err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, d.fs, want)
			})
		}
	}
}

// TestMendFindsDamage: where the log itself is wrong it isn't the index's fault.
func TestMendFindsDamage(t *testing.T) {
	d, left := leftLog(t)
	d.change(0, func(b []byte) []byte { b[len(b)/4+100] ^= 1; return b })
	put(t, d.fs, "/p/"+FileName(0, ExtIndex), make([]byte, left[0].OffsetIndexSize))
	l, _ := mustOpen(t, d.fs, keepSettings, Recovery{Clean: true, Segments: left})
	s, err := l.Read(9, 1, true, 36)
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	if _, err := l.Mend(); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	checkBatches(t, collect(t, l, 12), d.batches[4:])
}
