package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A File is an open file. ReadAt and WriteAt may be called from many goroutines at once; Read and Write share
// one position and may not.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Reader
	io.Writer
	io.Closer
	// Truncate sets the size; a longer file reads as zeros behind its old end.
	Truncate(size int64) error
	// Sync returns once everything written to the file is durable. After an error nothing is known about
	// the file's unsynced bytes, and calling Sync again doesn't tell: the caller gives the file up.
	Sync() error
	Stat() (fs.FileInfo, error)
	// Name is the name the file was opened with.
	Name() string
	// OS is the operating system's file, for sendfile; nil when there is none.
	OS() *os.File
}

// An FS is a file system as the storage packages use it. Names are slash-separated paths as package os takes
// them. Errors satisfy errors.Is with fs.ErrNotExist, fs.ErrExist and the syscall numbers (syscall.ENOSPC).
type FS interface {
	// OpenFile takes os.O_RDONLY, O_WRONLY or O_RDWR with O_CREATE, O_EXCL, O_TRUNC and O_APPEND.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Rename(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a directory ascending by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SetModTime sets when a file counts as last written. It is a hint that a crash may lose.
	SetModTime(name string, t time.Time) error
	// SyncDir makes the entries of a directory durable: what was created, renamed or removed in it. As with
	// File.Sync an error is final.
	SyncDir(name string) error
	// Lock takes an advisory lock on the file, which it creates where it is missing, until the closer is
	// closed or the process ends. ErrLocked when another holds it.
	Lock(name string) (io.Closer, error)
	// Usage tells the size of the volume that holds name, and what of it is free for us, in bytes.
	Usage(name string) (total, usable int64, err error)
}

// ErrLocked is the error of FS.Lock on a file that another process, or another caller, has locked.
var ErrLocked = errors.New("locked by another process")

// ErrTooLarge is the error of ReadFile on a file longer than the caller allows.
var ErrTooLarge = errors.New("file too large")

// ReadFile returns the content of a file of at most maxBytes.
func ReadFile(fsys FS, name string, maxBytes int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxBytes {
		return nil, fmt.Errorf("%s has %d bytes, at most %d allowed: %w", name, st.Size(), maxBytes, ErrTooLarge)
	}
	data := make([]byte, st.Size())
	n, err := f.ReadAt(data, 0)
	if n == len(data) {
		return data, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// WriteFileAtomic replaces the content of a file so that a crash leaves the old or the new content, never a
// part, and so that the new one is durable when it returns: Kafka's way of writing checkpoints (<name>.tmp,
// fsync, rename, fsync of the directory).
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	if err := ReplaceFile(fsys, name, data); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// ReplaceFile is WriteFileAtomic without the last step: until its directory is synced a crash may leave the old content.
func ReplaceFile(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return fsys.Rename(tmp, name)
}
