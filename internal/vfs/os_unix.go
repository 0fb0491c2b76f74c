//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
)

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// lock uses flock, and beside it the kind of lock that Java's FileChannel.lock takes and sees, where there is one that works between
// the files of one process, too: so that a directory is guarded against an Apache Kafka on it.
func lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	if err := lockRecord(f); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

func usage(name string) (total, usable int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(name, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", name, err)
	}
	size := int64(st.Bsize)
	return int64(st.Blocks) * size, int64(st.Bavail) * size, nil
}

// OpenFilesMax is how many files and sockets the process may have open.
func OpenFilesMax() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return openFilesUnknown
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}

const openFilesUnknown = 1024 // where nothing can be found out
