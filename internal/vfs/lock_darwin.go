package vfs

import "os"

// lockRecord does nothing: the POSIX locks there are belong to the process, which loses them when it closes the file anywhere.
func lockRecord(*os.File) error { return nil }
