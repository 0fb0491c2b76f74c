package log

import (
	"fmt"
	"testing"

	"oncelog/internal/vfs"
)

func TestFilesAreBounded(t *testing.T) {
	m := newMem(t)
	open := 0
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpOpen, vfs.OpCreate:
			open++
		case vfs.OpClose:
			open--
		}
		return nil
	})
	files := NewFiles(fsys, 4)
	var logs []*Log
	for i := range 20 {
		dir := fmt.Sprintf("/p/%d", i)
		m.MkdirAll(dir, 0o755)
		l, _, err := Open(fsys, dir, Options{Files: files}, Recovery{}, clock)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	if open != 0 || files.Open() != 0 {
		t.Fatalf("%d files open before use", open)
	}
	for round := range int64(3) {
		for _, l := range logs {
			mustAppend(t, l, makeBatch(t, round, 1, 1000, 100))
		}
	}
	if open != 4 || files.Open() != 4 {
		t.Errorf("%d files open, %d in the cache, want 4", open, files.Open())
	}
	// Slices keep their files open beyond the bound, until they are released.
	var slices []Slice
	for _, l := range logs {
		s, err := l.Read(0, 1000, true, 3)
		if err != nil {
			t.Fatal(err)
		}
		slices = append(slices, s)
	}
	if open != 20 {
		t.Errorf("%d files open for 20 slices", open)
	}
	for _, s := range slices {
		s.Release()
	}
	mustAppend(t, logs[0], makeBatch(t, 3, 1, 1000, 100))
	if n := files.CloseIdle(); n != 0 {
		t.Errorf("closed %d files that were in use a moment ago", n)
	}
	mustAppend(t, logs[1], makeBatch(t, 3, 1, 1000, 100))
	files.CloseIdle()
	if files.Open() != 1 || open != 1 {
		t.Errorf("%d files open after a quiet time, want that of the one log", open)
	}
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files.Close()
	if open != 0 {
		t.Errorf("%d files left open", open)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		offset int64
		ext    string
		name   string
	}{
		{0, ExtLog, "00000000000000000000.log"},
		{42, ExtSnapshot, "00000000000000000042.snapshot"},
		{1<<63 - 1, ExtTimeIndex + SuffixDeleted, "09223372036854775807.timeindex.deleted"},
	} {
		if got := FileName(c.offset, c.ext); got != c.name {
			t.Errorf("%q, want %q", got, c.name)
		}
		if offset, ext, ok := ParseFileName(c.name); !ok || offset != c.offset || ext != c.ext {
			t.Errorf("%s: %d, %q, %v", c.name, offset, ext, ok)
		}
	}
	for _, name := range []string{"", "x", "00000000000000000000", "0000000000000000000.log", "+0000000000000000000.log",
		"000000000000000000000.log", "99999999999999999999.log", "-0000000000000000001.log"} {
		if _, _, ok := ParseFileName(name); ok {
			t.Errorf("%q was taken for a file of a segment", name)
		}
	}
}
