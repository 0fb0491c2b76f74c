package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockRecord takes a POSIX lock of the whole file that belongs to the open file, not to the process.
func lockRecord(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return nil // a file system without them has flock
}
