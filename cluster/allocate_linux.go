package cluster

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a file room on the disk up to a size.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fill(f, size)
	}
	return err
}
