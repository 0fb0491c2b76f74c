package vfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Every operation of FS and File must be seen by the injector and fail with its error.
func TestInjectFailsEachOperation(t *testing.T) {
	fail := Kind(0)
	var seen []string
	boom := errors.New("boom")
	fsys := Inject(NewMem(), func(op Op) error {
		seen = append(seen, op.Kind.String())
		if op.Kind == fail {
			return boom
		}
		return nil
	})
	run := func() error {
		var errs []error
		do := func(err error) { errs = append(errs, err) }
		do(fsys.MkdirAll("d", 0o755))
		f, err := fsys.OpenFile("d/a", os.O_RDWR|os.O_CREATE, 0o644)
		do(err)
		if err == nil {
			buf := []byte("abc")
			_, err = f.Write(buf)
			do(err)
			_, err = f.WriteAt(buf, 0)
			do(err)
			_, err = f.ReadAt(buf[:1], 0)
			do(err)
			do(f.Truncate(1))
			do(f.Sync())
			_, err = f.Stat()
			do(err)
			if f.OS() != nil {
				t.Error("an injected file gives its os.File")
			}
			do(f.Close())
		}
		if f, err = fsys.OpenFile("d/a", os.O_RDONLY, 0); err == nil {
			_, err = f.Read(make([]byte, 1))
			do(f.Close())
		}
		do(err)
		_, err = fsys.Stat("d")
		do(err)
		do(fsys.SetModTime("d/a", time.UnixMilli(1)))
		_, err = fsys.ReadDir("d")
		do(err)
		do(fsys.SyncDir("d"))
		l, err := fsys.Lock("lock")
		do(err)
		if err == nil {
			do(l.Close())
		}
		_, _, err = fsys.Usage("d")
		do(err)
		do(fsys.Rename("d", "e"))
		do(fsys.Remove("e/a"))
		do(fsys.RemoveAll("e"))
		fsys.RemoveAll("d")
		return errors.Join(errs...)
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(seen, " ")
	for k := OpOpen; k <= OpUsage; k++ {
		if !strings.Contains(all, k.String()) {
			t.Errorf("%v wasn't seen", k)
		}
		fail = k
		if err := run(); !errors.Is(err, boom) {
			t.Errorf("%v: %v", k, err)
		}
		fail = 0
		fsys.RemoveAll("e")
		fsys.RemoveAll("d")
	}
	if Kind(99).String() != "unknown" || OpRead.Changes() || !OpWrite.Changes() {
		t.Error("kinds")
	}
}

func TestInjectPartialWrite(t *testing.T) {
	m := NewMem()
	fsys := Inject(m, func(op Op) error {
		if op.Kind == OpWrite && op.Len == 5 {
			return &Partial{N: 2, Err: syscall.ENOSPC}
		}
		return nil
	})
	f := write(t, fsys, "a", "1")
	n, err := f.WriteAt([]byte("abcde"), 1)
	var pathErr *fs.PathError
	if n != 2 || !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pathErr) {
		t.Errorf("%d, %v", n, err)
	}
	if got := read(t, m, "a"); got != "1ab" {
		t.Errorf("content %q", got)
	}
}
