package vfs

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) OS() *os.File { return f.File }

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(oldName, newName string) error         { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }
func (osFS) SetModTime(name string, t time.Time) error {
	return os.Chtimes(name, time.Time{}, t)
}
func (osFS) SyncDir(name string) error               { return syncDir(name) }
func (osFS) Lock(name string) (io.Closer, error)     { return lock(name) }
func (osFS) Usage(name string) (int64, int64, error) { return usage(name) }
