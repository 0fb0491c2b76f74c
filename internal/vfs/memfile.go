package vfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"sync/atomic"
	"syscall"
)

// memFile is an open file of a Mem. It stays usable when its name is renamed or removed.
type memFile struct {
	m      *Mem
	n      *node
	name   string
	flag   int
	pos    int64 // of Read and Write; not for concurrent use
	closed atomic.Bool
}

func (f *memFile) Name() string { return f.name }
func (f *memFile) OS() *os.File { return nil }

// check is the error of an operation on a closed file, or with an access the file wasn't opened for.
func (f *memFile) check(op string, forbidden int) error {
	if f.closed.Load() {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if f.flag&(os.O_WRONLY|os.O_RDWR) == forbidden {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", os.O_WRONLY); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", os.O_RDONLY); err != nil {
		return 0, err
	}
	if off < 0 || f.flag&os.O_APPEND != 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.writeLocked(p, off)
}

func (f *memFile) Write(p []byte) (int, error) {
	if err := f.check("write", os.O_RDONLY); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.flag&os.O_APPEND != 0 {
		f.pos = int64(len(f.n.data))
	}
	n, err := f.writeLocked(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *memFile) writeLocked(p []byte, off int64) (int, error) {
	m, n := f.m, f.n
	var full error
	if grow := off + int64(len(p)) - int64(len(n.data)); m.mu.capacity > 0 && grow > 0 {
		if free := max(0, m.mu.capacity-m.mu.used); grow > free {
			p = p[:max(0, int64(len(p))-(grow-free))]
			full = pathError("write", f.name, syscall.ENOSPC)
		}
	}
	if len(p) > 0 {
		n.touch(off)
		if end := off + int64(len(p)); end > int64(len(n.data)) {
			m.mu.used += end - int64(len(n.data))
			n.resize(end)
		}
		copy(n.data[off:], p)
		n.modTime = m.mu.now()
	}
	return len(p), full
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", os.O_RDONLY); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.truncateLocked(f.n, size); err != nil {
		return pathError("truncate", f.name, err)
	}
	return nil
}

func (m *Mem) truncateLocked(n *node, size int64) error {
	if size < 0 {
		return fs.ErrInvalid
	}
	if size == int64(len(n.data)) {
		return nil
	}
	n.touch(min(size, int64(len(n.data))))
	m.mu.used += size - int64(len(n.data))
	n.resize(size)
	n.sizeMin = min(n.sizeMin, size)
	n.modTime = m.mu.now()
	return nil
}

func (f *memFile) Sync() error {
	if f.closed.Load() {
		return pathError("sync", f.name, fs.ErrClosed)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

func (f *memFile) Stat() (fs.FileInfo, error) {
	if f.closed.Load() {
		return nil, pathError("stat", f.name, fs.ErrClosed)
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	return f.n.info(path.Base(f.name)), nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}

// touch notes that the content from an offset on is about to differ from what is durable.
func (n *node) touch(from int64) {
	if !n.dirty {
		n.dirty, n.dirtyFrom, n.sizeMin = true, from, int64(len(n.data))
	}
	n.dirtyFrom = min(n.dirtyFrom, from, int64(len(n.data)))
}

// resize sets the length of data; what it grows by is zero.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size <= old {
		n.data = n.data[:size]
		return
	}
	if size > int64(cap(n.data)) {
		grown := make([]byte, old, max(size, 2*old))
		copy(grown, n.data)
		n.data = grown
	}
	n.data = n.data[:size]
	clear(n.data[old:])
}

func (n *node) sync() {
	if !n.dirty {
		return
	}
	keep := min(n.dirtyFrom, int64(len(n.durable)), int64(len(n.data)))
	n.durable = append(n.durable[:keep], n.data[keep:]...)
	n.dirty = false
}
