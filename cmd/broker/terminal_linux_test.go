package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a terminal: what is written to w is read from r.
func terminal(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { r.Close() })
	fd := int(r.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		w, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { w.Close() })
	return r, w
}

// TestProgressBar is drawn on a terminal and taken away; nowhere else there is one.
func TestProgressBar(t *testing.T) {
	r, w := terminal(t)
	bar := newProgressBar(w)
	bar.show(25<<20, 100<<20)
	bar.show(26<<20, 100<<20) // too soon
	bar.clear()
	var seen strings.Builder
	for buf := make([]byte, 256); !strings.HasSuffix(seen.String(), "\r\x1b[K"); {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(buf[:n])
	}
	if want := "\r[##########" + strings.Repeat(" ", 30) + "]  25 %  25 of 100 MiB\r\x1b[K"; seen.String() != want {
		t.Errorf("%q, want %q", seen.String(), want)
	}
	var file strings.Builder
	bar = newProgressBar(&file)
	bar.show(1, 2)
	bar.clear()
	if f, err := os.Create(t.TempDir() + "/out"); err != nil || newProgressBar(f).w != nil || file.Len() > 0 {
		t.Errorf("drawn where nobody looks: %q, %v", file.String(), err)
	}
}
