//go:build !linux

package cluster

import "os"

// allocate gives a file room on the disk up to a size.
func allocate(f *os.File, size int64) error { return fill(f, size) }
