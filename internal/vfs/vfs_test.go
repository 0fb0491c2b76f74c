package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// eachFS runs a test on the operating system's files and on those in memory: they must behave alike.
func eachFS(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		if err := m.MkdirAll("/data", 0o755); err != nil {
			t.Fatal(err)
		}
		test(t, m, "/data")
	})
}

func write(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, fsys FS, dir string) []string {
	t.Helper()
	list, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestFileOperations(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "a")
		f := write(t, fsys, name, "hello")
		if f.Name() != name {
			t.Errorf("name %q", f.Name())
		}
		if _, err := f.WriteAt([]byte("J"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("!"), 7); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, name); got != "Jello\x00\x00!" {
			t.Errorf("content %q", got)
		}
		if err := f.Truncate(2); err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(4); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, name); got != "Je\x00\x00" {
			t.Errorf("content %q after truncate", got)
		}
		buf := make([]byte, 8)
		if n, err := f.ReadAt(buf, 1); n != 3 || err != io.EOF {
			t.Errorf("short read: %d, %v", n, err)
		}
		if n, err := f.ReadAt(buf, 9); n != 0 || err != io.EOF {
			t.Errorf("read behind the end: %d, %v", n, err)
		}
		all, err := io.ReadAll(f)
		if err != nil || string(all) != "Je\x00\x00" {
			t.Errorf("sequential read %q, %v", all, err)
		}
		if _, err := f.Write([]byte("xy")); err != nil {
			t.Fatal(err)
		}
		if st, err := f.Stat(); err != nil || st.Size() != 6 || st.Name() != "a" || st.IsDir() {
			t.Errorf("stat %v, %v", st, err)
		}
		if err := f.Sync(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read of a closed file: %v", err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestOpenFlags(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "a")
		if _, err := fsys.OpenFile(name, os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open of nothing: %v", err)
		}
		if _, err := fsys.OpenFile(filepath.Join(dir, "no", "a"), os.O_CREATE|os.O_RDWR, 0o644); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("create in nothing: %v", err)
		}
		write(t, fsys, name, "hello")
		if _, err := fsys.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644); !errors.Is(err, fs.ErrExist) {
			t.Errorf("exclusive create: %v", err)
		}
		f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write([]byte(" you")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
			t.Error("read of a write-only file")
		}
		if got := read(t, fsys, name); got != "hello you" {
			t.Errorf("appended: %q", got)
		}
		ro, err := fsys.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer ro.Close()
		if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
			t.Error("write to a read-only file")
		}
		tr, err := fsys.OpenFile(name, os.O_RDWR|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if got := read(t, fsys, name); got != "" {
			t.Errorf("truncated at open: %q", got)
		}
	})
}

func TestDirectories(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		sub := filepath.Join(dir, "x", "y")
		for range 2 {
			if err := fsys.MkdirAll(sub, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, fsys, filepath.Join(sub, "b"), "b")
		open := write(t, fsys, filepath.Join(sub, "a"), "a")
		if got := names(t, fsys, sub); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("names %q", got)
		}
		if err := fsys.Rename(filepath.Join(sub, "a"), filepath.Join(dir, "c")); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Rename(filepath.Join(sub, "b"), filepath.Join(dir, "c")); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, filepath.Join(dir, "c")); got != "b" {
			t.Errorf("renamed over: %q", got)
		}
		// A file without a name is still there for who has it open.
		buf := make([]byte, 1)
		if _, err := open.ReadAt(buf, 0); err != nil || buf[0] != 'a' {
			t.Errorf("read of a replaced file: %q, %v", buf, err)
		}
		if err := fsys.Rename(filepath.Join(sub, "nothing"), filepath.Join(dir, "d")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("rename of nothing: %v", err)
		}
		if err := fsys.Remove(filepath.Join(dir, "x")); err == nil {
			t.Error("removed a directory that isn't empty")
		}
		if err := fsys.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "z")); err != nil {
			t.Fatal(err)
		}
		if st, err := fsys.Stat(filepath.Join(dir, "z", "y")); err != nil || !st.IsDir() {
			t.Errorf("stat %v, %v", st, err)
		}
		if err := fsys.SyncDir(dir); err != nil {
			t.Error(err)
		}
		if err := fsys.SyncDir(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("sync of nothing: %v", err)
		}
		for range 2 {
			if err := fsys.RemoveAll(filepath.Join(dir, "z")); err != nil {
				t.Fatal(err)
			}
		}
		if err := fsys.Remove(filepath.Join(dir, "c")); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Remove(filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("second remove: %v", err)
		}
		if got := names(t, fsys, dir); len(got) != 0 {
			t.Errorf("left %q", got)
		}
	})
}

func TestLockIsExclusive(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) {
			t.Errorf("second lock: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
}

func TestWriteFileAtomic(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "checkpoint")
		for _, content := range []string{"0\n1\nlong 0 1\n", "0\n0\n", ""} {
			if err := WriteFileAtomic(fsys, name, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if got := read(t, fsys, name); got != content {
				t.Errorf("%q, want %q", got, content)
			}
		}
		if got := names(t, fsys, dir); !slices.Equal(got, []string{"checkpoint"}) {
			t.Errorf("left %q", got)
		}
		write(t, fsys, name, "four")
		if _, err := ReadFile(fsys, name, 3); !errors.Is(err, ErrTooLarge) {
			t.Errorf("read of a longer file: %v", err)
		}
	})
}

func TestOSFileForSendfile(t *testing.T) {
	if f := write(t, OS, filepath.Join(t.TempDir(), "a"), "a"); f.OS() == nil {
		t.Error("the operating system's file has no os.File")
	}
	if f := write(t, NewMem(), "a", "a"); f.OS() != nil {
		t.Error("a file in memory has an os.File")
	}
	total, usable, err := OS.Usage(t.TempDir())
	if err != nil || total < usable || total == 0 {
		t.Errorf("usage %d, %d, %v", total, usable, err)
	}
}

func TestMemCapacity(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10)
	f := write(t, m, "a", "12345678")
	n, err := f.WriteAt([]byte("90ab"), 8)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("write over the capacity: %d, %v", n, err)
	}
	if err := f.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if _, usable, _ := m.Usage("/"); usable != 6 {
		t.Errorf("usable %d", usable)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("x"), 6), 4); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, usable, _ := m.Usage("/"); usable != 10 {
		t.Errorf("usable %d after remove", usable)
	}
}

func TestSetModTime(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "a")
		write(t, fsys, name, "x")
		want := time.UnixMilli(1_700_000_000_123)
		if err := fsys.SetModTime(name, want); err != nil {
			t.Fatal(err)
		}
		if st, err := fsys.Stat(name); err != nil || !st.ModTime().Equal(want) {
			t.Errorf("%v, %v", st, err)
		}
		if err := fsys.SetModTime(filepath.Join(dir, "b"), want); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}
