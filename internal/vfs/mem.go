package vfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Mem is a file system in memory that remembers what has been synced, so that CrashClone can give the disk as
// a loss of power could leave it. Relative and absolute names are the same to it. Safe for concurrent use.
type Mem struct {
	mu struct {
		sync.RWMutex
		root     *node
		pending  []change // of directories, not synced yet, in the order they were made
		locked   map[string]bool
		capacity int64 // 0: unbounded
		used     int64 // bytes of all files that have a name
		now      func() time.Time
	}
}

// A node is a file or a directory. Guarded by Mem.mu.
type node struct {
	modTime time.Time

	// A file's content now, and as of the last Sync. What they differ in lies at or above dirtyFrom;
	// sizeMin is the least size it has had since the Sync.
	data, durable      []byte
	dirty              bool
	dirtyFrom, sizeMin int64

	// A directory's entries now, and as of the last SyncDir. Nil for a file.
	entries, durableEntries map[string]*node
}

// A change is one pending change of directory entries: target gets the name to.name (when to.dir is set) and
// loses the name from.name (when from.dir is set).
type change struct {
	target   *node
	from, to entry
}

type entry struct {
	dir  *node
	name string
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.now = time.Now
	m.mu.root = newDir(time.Time{})
	m.mu.locked = map[string]bool{}
	return m
}

// SetCapacity bounds the bytes of all files; a write beyond puts down what fits and fails with syscall.ENOSPC.
// 0 is no bound.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

// SetClock replaces the clock that modification times are taken from.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.now = now
}

func newDir(now time.Time) *node {
	return &node{modTime: now, entries: map[string]*node{}, durableEntries: map[string]*node{}}
}

func (n *node) isDir() bool { return n.entries != nil }

func split(name string) []string {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func (m *Mem) lookupLocked(parts []string) (*node, error) {
	n := m.mu.root
	for _, p := range parts {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		child, ok := n.entries[p]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = child
	}
	return n, nil
}

// parentLocked finds the directory that holds name, and the last part of name.
func (m *Mem) parentLocked(name string) (*node, string, error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir, err := m.lookupLocked(parts[:len(parts)-1])
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	return dir, parts[len(parts)-1], err
}

func (m *Mem) applyLocked(c change) {
	now := m.mu.now()
	if c.from.dir != nil {
		delete(c.from.dir.entries, c.from.name)
		c.from.dir.modTime = now
		if c.to.dir == nil {
			m.mu.used -= int64(len(c.target.data))
		}
	}
	if c.to.dir != nil {
		if old := c.to.dir.entries[c.to.name]; old != nil && old != c.target {
			m.mu.used -= int64(len(old.data))
		}
		c.to.dir.entries[c.to.name] = c.target
		c.to.dir.modTime = now
	}
	m.mu.pending = append(m.mu.pending, c)
}

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	n, ok := dir.entries[base]
	switch {
	case !ok && flag&os.O_CREATE == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case ok && flag&os.O_EXCL != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case ok && n.isDir():
		return nil, pathError("open", name, syscall.EISDIR)
	case !ok:
		n = &node{modTime: m.mu.now()}
		m.applyLocked(change{target: n, to: entry{dir, base}})
	}
	if flag&os.O_TRUNC != 0 {
		if err := m.truncateLocked(n, 0); err != nil {
			return nil, pathError("open", name, err)
		}
	}
	return &memFile{m: m, n: n, name: name, flag: flag}, nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fromDir, fromBase, err := m.parentLocked(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	n, ok := fromDir.entries[fromBase]
	if !ok {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	toDir, toBase, err := m.parentLocked(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	old := toDir.entries[toBase]
	switch {
	case old == n:
		return nil
	case old != nil && old.isDir() != n.isDir():
		return pathError("rename", newName, fs.ErrExist)
	case old != nil && old.isDir() && len(old.entries) > 0:
		return pathError("rename", newName, syscall.ENOTEMPTY)
	}
	m.applyLocked(change{target: n, from: entry{fromDir, fromBase}, to: entry{toDir, toBase}})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n, ok := dir.entries[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.isDir() && len(n.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.applyLocked(change{target: n, from: entry{dir, base}})
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return pathError("removeall", name, err)
	}
	if n, ok := dir.entries[base]; ok {
		m.removeTreeLocked(dir, base, n)
	}
	return nil
}

func (m *Mem) removeTreeLocked(dir *node, name string, n *node) {
	for _, child := range sortedNames(n.entries) {
		m.removeTreeLocked(n, child, n.entries[child])
	}
	m.applyLocked(change{target: n, from: entry{dir, name}})
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.mu.root
	for _, p := range split(name) {
		child, ok := dir.entries[p]
		if !ok {
			child = newDir(m.mu.now())
			m.applyLocked(change{target: child, to: entry{dir, p}})
		}
		if !child.isDir() {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		dir = child
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	dir, err := m.lookupLocked(split(name))
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	names := sortedNames(dir.entries)
	list := make([]fs.DirEntry, len(names))
	for i, child := range names {
		list[i] = fs.FileInfoToDirEntry(dir.entries[child].info(child))
	}
	return list, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupLocked(split(name))
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(path.Base(name)), nil
}

// SetModTime implements FS.
func (m *Mem) SetModTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(split(name))
	if err != nil {
		return pathError("setmodtime", name, err)
	}
	n.modTime = t
	return nil
}

// SyncDir implements FS: all pending changes that touch the directory become durable.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.lookupLocked(split(name))
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("syncdir", name, err)
	}
	rest := m.mu.pending[:0]
	for _, c := range m.mu.pending {
		if c.from.dir != dir && c.to.dir != dir {
			rest = append(rest, c)
			continue
		}
		if c.from.dir != nil {
			delete(c.from.dir.durableEntries, c.from.name)
		}
		if c.to.dir != nil {
			c.to.dir.durableEntries[c.to.name] = c.target
		}
	}
	clear(m.mu.pending[len(rest):])
	m.mu.pending = rest
	return nil
}

// Lock implements FS, for the callers of this Mem among each other.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	key := path.Clean("/" + name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.locked[key] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.mu.locked[key] = true
	return &memLock{File: f, m: m, key: key}, nil
}

type memLock struct {
	File
	m   *Mem
	key string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.mu.locked, l.key)
	l.m.mu.Unlock()
	return l.File.Close()
}

// Usage implements FS. Without a capacity the volume has 1 TiB.
func (m *Mem) Usage(string) (total, usable int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	total = m.mu.capacity
	if total == 0 {
		total = 1 << 40
	}
	return total, max(0, total-m.mu.used), nil
}

func sortedNames(entries map[string]*node) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

type memInfo struct {
	name    string
	size    int64
	dir     bool
	modTime time.Time
}

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.isDir(), modTime: n.modTime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) ModTime() time.Time { return i.modTime }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
