package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// A Kind is one operation of FS or File.
type Kind uint8

// The operations that an Injector sees.
const (
	OpOpen     Kind = iota + 1 // OpenFile without O_CREATE
	OpCreate                   // OpenFile with O_CREATE
	OpRead                     // Read, ReadAt
	OpWrite                    // Write, WriteAt
	OpTruncate                 // File.Truncate
	OpSync                     // File.Sync
	OpFileStat                 // File.Stat
	OpClose                    // File.Close
	OpRename
	OpRemove
	OpRemoveAll
	OpMkdir
	OpReadDir
	OpStat
	OpSetModTime
	OpSyncDir
	OpLock
	OpUsage
)

var kindNames = [...]string{
	OpOpen: "open", OpCreate: "create", OpRead: "read", OpWrite: "write", OpTruncate: "truncate", OpSync: "sync",
	OpFileStat: "fstat", OpClose: "close", OpRename: "rename", OpRemove: "remove", OpRemoveAll: "removeall",
	OpMkdir: "mkdir", OpReadDir: "readdir", OpStat: "stat", OpSetModTime: "setmodtime", OpSyncDir: "syncdir", OpLock: "lock", OpUsage: "usage",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// Changes reports whether the operation changes what a crash could leave: after these a crash test clones.
func (k Kind) Changes() bool {
	switch k {
	case OpCreate, OpWrite, OpTruncate, OpSync, OpRename, OpRemove, OpRemoveAll, OpMkdir, OpSyncDir:
		return true
	}
	return false
}

// An Op is one operation as an Injector sees it.
type Op struct {
	Kind Kind
	Name string // of the file; the old name for OpRename
	Len  int    // bytes to read or write
}

// An Injector is called before each operation, perhaps from many goroutines at once. Nil lets the operation
// go on; an error is returned in its place, within a *fs.PathError. A *Partial makes a write put down its
// first bytes and then fail.
type Injector func(Op) error

// A Partial is an Injector's error for a write that gets through in part.
type Partial struct {
	N   int // bytes written before the error, at most what the write has
	Err error
}

func (p *Partial) Error() string { return p.Err.Error() }
func (p *Partial) Unwrap() error { return p.Err }

// Inject wraps a file system so that each operation asks the injector first.
func Inject(fsys FS, injector Injector) FS { return &injectFS{fsys, injector} }

type injectFS struct {
	fs     FS
	inject Injector
}

func (x *injectFS) ask(kind Kind, name string, n int) error {
	if err := x.inject(Op{Kind: kind, Name: name, Len: n}); err != nil {
		return &fs.PathError{Op: kind.String(), Path: name, Err: err}
	}
	return nil
}

func (x *injectFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	if err := x.ask(kind, name, 0); err != nil {
		return nil, err
	}
	f, err := x.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &injectFile{File: f, fs: x}, nil
}

func (x *injectFS) Rename(oldName, newName string) error {
	if err := x.ask(OpRename, oldName, 0); err != nil {
		return err
	}
	return x.fs.Rename(oldName, newName)
}

func (x *injectFS) Remove(name string) error {
	if err := x.ask(OpRemove, name, 0); err != nil {
		return err
	}
	return x.fs.Remove(name)
}

func (x *injectFS) RemoveAll(name string) error {
	if err := x.ask(OpRemoveAll, name, 0); err != nil {
		return err
	}
	return x.fs.RemoveAll(name)
}

func (x *injectFS) MkdirAll(name string, perm fs.FileMode) error {
	if err := x.ask(OpMkdir, name, 0); err != nil {
		return err
	}
	return x.fs.MkdirAll(name, perm)
}

func (x *injectFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := x.ask(OpReadDir, name, 0); err != nil {
		return nil, err
	}
	return x.fs.ReadDir(name)
}

func (x *injectFS) Stat(name string) (fs.FileInfo, error) {
	if err := x.ask(OpStat, name, 0); err != nil {
		return nil, err
	}
	return x.fs.Stat(name)
}

func (x *injectFS) SetModTime(name string, t time.Time) error {
	if err := x.ask(OpSetModTime, name, 0); err != nil {
		return err
	}
	return x.fs.SetModTime(name, t)
}

func (x *injectFS) SyncDir(name string) error {
	if err := x.ask(OpSyncDir, name, 0); err != nil {
		return err
	}
	return x.fs.SyncDir(name)
}

func (x *injectFS) Lock(name string) (io.Closer, error) {
	if err := x.ask(OpLock, name, 0); err != nil {
		return nil, err
	}
	return x.fs.Lock(name)
}

func (x *injectFS) Usage(name string) (int64, int64, error) {
	if err := x.ask(OpUsage, name, 0); err != nil {
		return 0, 0, err
	}
	return x.fs.Usage(name)
}

// injectFile gives no OS file: bytes that sendfile moved would get past the injector.
type injectFile struct {
	File
	fs *injectFS
}

func (f *injectFile) OS() *os.File { return nil }

func (f *injectFile) Read(p []byte) (int, error) {
	if err := f.fs.ask(OpRead, f.Name(), len(p)); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.ask(OpRead, f.Name(), len(p)); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *injectFile) Write(p []byte) (int, error) {
	return f.write(p, f.File.Write)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *injectFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	injected := f.fs.ask(OpWrite, f.Name(), len(p))
	if injected == nil {
		return write(p)
	}
	var part *Partial
	if !errors.As(injected, &part) {
		return 0, injected
	}
	n, err := write(p[:min(part.N, len(p))])
	if err != nil {
		return n, err
	}
	return n, injected
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.fs.ask(OpTruncate, f.Name(), 0); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *injectFile) Sync() error {
	if err := f.fs.ask(OpSync, f.Name(), 0); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectFile) Stat() (fs.FileInfo, error) {
	if err := f.fs.ask(OpFileStat, f.Name(), 0); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

// Close closes the file whatever the injector says.
func (f *injectFile) Close() error {
	injected := f.fs.ask(OpClose, f.Name(), 0)
	if err := f.File.Close(); err != nil {
		return err
	}
	return injected
}
