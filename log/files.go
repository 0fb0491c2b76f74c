package log

import (
	"os"
	"sync"
	"sync/atomic"

	"oncelog/internal/vfs"
)

// Files is a cache of open files that the logs of a replica set share: a file is opened when it is needed and
// closed when the cache is full or nobody used it for a while. The bound is soft: a file that is in use at the
// moment stays open. Safe for concurrent use; using a file that is open takes no lock.
type Files struct {
	fs  vfs.FS
	max int

	mu struct {
		sync.Mutex
		open []*handle
		hand int // where the next search for a victim begins
	}
}

// NewFiles makes a cache that keeps about max files open, at least 1.
func NewFiles(fsys vfs.FS, max int) *Files {
	if max < 1 {
		max = 1
	}
	return &Files{fs: fsys, max: max}
}

// A handle is an open file with its users counted; the cache is one of them. It is closed by the last to leave.
type handle struct {
	vfs.File
	users atomic.Int32
	used  atomic.Bool // since the cache last looked
	home  *file
	slot  int // in Files.mu.open, guarded by Files.mu
}

// enter makes the caller a user, unless the last one has left already.
func (h *handle) enter() bool {
	for {
		n := h.users.Load()
		if n == 0 {
			return false
		}
		if h.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends one use. Closing a file that was only read, or whose writes are the page cache's by now, has no
// error worth knowing: durability is what Sync says.
func (h *handle) leave() {
	if h.users.Add(-1) == 0 {
		h.File.Close()
	}
}

// A file is a file of a segment, open or not. It is read by atomic pointer.
type file struct {
	segment *segment
	ext     string
	stage   atomic.Uint32 // of a rewriting; stageFinal for all files but those of a segment that is about to replace others
	current atomic.Pointer[handle]
}

// The stages of a file that Rewrite makes, and what its name ends with.
const (
	stageFinal = iota
	stageSwap
	stageCleaned
)

var stageSuffixes = [...]string{stageFinal: "", stageSwap: SuffixSwap, stageCleaned: SuffixCleaned}

func (x *file) path() string {
	return x.segment.log.path(x.segment.base, x.ext) + stageSuffixes[x.stage.Load()]
}

// move renames the file to its name in another stage.
func (x *file) move(stage uint32) error {
	l := x.segment.log
	l.moving.Lock()
	defer l.moving.Unlock()
	from := x.path()
	if err := l.fs.Rename(from, l.path(x.segment.base, x.ext)+stageSuffixes[stage]); err != nil {
		return err
	}
	x.stage.Store(stage)
	return nil
}

// acquire opens the file if need be; the caller leaves the handle when done. flag may hold os.O_CREATE.
func (x *file) acquire(flag int) (*handle, error) {
	if h := x.current.Load(); h != nil && h.enter() {
		if !h.used.Load() {
			h.used.Store(true)
		}
		return h, nil
	}
	return x.segment.log.files.open(x, flag)
}

// drop takes the file out of the cache; it is closed when its users have left.
func (x *file) drop() {
	c := x.segment.log.files
	c.mu.Lock()
	h := x.current.Load()
	if h != nil {
		c.removeLocked(h)
	}
	c.mu.Unlock()
	if h != nil {
		h.leave()
	}
}

func (c *Files) open(x *file, flag int) (*handle, error) {
	for {
		name := x.path()
		f, err := c.fs.OpenFile(name, os.O_RDWR|flag, 0o644)
		if err == nil {
			return c.add(x, f), nil
		}
		if !isNotExist(err) || x.settled() == name {
			return nil, err
		}
	}
}

// settled is the file's name when no move is going on.
func (x *file) settled() string {
	l := x.segment.log
	l.moving.Lock()
	defer l.moving.Unlock()
	return x.path()
}

// add puts an open file into the cache, with the caller as a user. Where another goroutine was faster, its handle
// is used and this one closed.
func (c *Files) add(x *file, f vfs.File) *handle {
	h := &handle{File: f, home: x}
	h.used.Store(true)
	c.mu.Lock()
	if cur := x.current.Load(); cur != nil && cur.enter() {
		c.mu.Unlock()
		f.Close()
		return cur
	}
	if x.segment.removed.Load() || x.segment.log.closed.Load() {
		// Nobody will drop it any more, so the cache may not have it.
		c.mu.Unlock()
		h.users.Store(1)
		return h
	}
	h.users.Store(2)
	h.slot = len(c.mu.open)
	c.mu.open = append(c.mu.open, h)
	x.current.Store(h)
	victim := c.victimLocked()
	c.mu.Unlock()
	if victim != nil {
		victim.leave()
	}
	return h
}

// victimLocked takes out a file that is not in use, by the clock algorithm, if there are too many.
func (c *Files) victimLocked() *handle {
	if len(c.mu.open) <= c.max {
		return nil
	}
	for range 2 * len(c.mu.open) {
		if c.mu.hand >= len(c.mu.open) {
			c.mu.hand = 0
		}
		h := c.mu.open[c.mu.hand]
		if h.users.Load() == 1 && !h.used.Swap(false) {
			c.removeLocked(h)
			return h
		}
		c.mu.hand++
	}
	return nil
}

// removeLocked takes a handle out of the cache. The caller leaves it in the cache's stead, off the lock.
func (c *Files) removeLocked(h *handle) {
	last := len(c.mu.open) - 1
	c.mu.open[h.slot] = c.mu.open[last]
	c.mu.open[h.slot].slot = h.slot
	c.mu.open[last] = nil
	c.mu.open = c.mu.open[:last]
	h.home.current.CompareAndSwap(h, nil)
}

// CloseIdle closes the files that nobody has used since the last call, and says how many that were.
func (c *Files) CloseIdle() int {
	return c.closeWhere(func(h *handle) bool { return !h.used.Swap(false) && h.users.Load() == 1 })
}

// Close closes all files, those in use when their users leave. The logs that share the cache are closed before.
func (c *Files) Close() {
	c.closeWhere(func(*handle) bool { return true })
}

func (c *Files) closeWhere(idle func(*handle) bool) int {
	var victims []*handle
	c.mu.Lock()
	for i := len(c.mu.open) - 1; i >= 0; i-- {
		if h := c.mu.open[i]; idle(h) {
			c.removeLocked(h)
			victims = append(victims, h)
		}
	}
	c.mu.Unlock()
	for _, h := range victims {
		h.leave()
	}
	return len(victims)
}

// Open is the number of files in the cache.
func (c *Files) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.open)
}
