//go:build !linux && !darwin

package vfs

import (
	"io"
	"os"
)

// syncDir has nothing to do where a directory can't be synced.
func syncDir(string) error { return nil }

// lock holds the file open; it doesn't keep another process away.
func lock(name string) (io.Closer, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
}

func usage(string) (total, usable int64, err error) { return -1, -1, nil }

// OpenFilesMax is how many files and sockets the process may have open.
func OpenFilesMax() int { return 1024 }
