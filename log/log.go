package log

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"

	"oncelog/internal/vfs"
)

// A Log is one partition's segments. One goroutine at a time writes: Append, Roll, SetSettings, TruncateTo, ResetTo,
// TrimTo, RemoveBefore, Quiesce, Close and Abandon need the owner's lock. Everything else may be called from any
// goroutine at any time and doesn't lock; Sync and one Rewrite at a time run beside the writer.
type Log struct {
	fs    vfs.FS
	dir   string
	files *Files

	// Invariant: segments[i].base < segments[i+1].base; there is at least one, the last is the active one.
	// The slice is immutable and swapped whole.
	segments atomic.Pointer[[]*segment]

	// Invariant: start <= end.
	start, end atomic.Int64

	// Everything below durable is on disk. recovered is what the owner's checkpoint may say (see Sync).
	// Invariant: recovered <= durable <= end.
	durable, recovered atomic.Int64

	truncations atomic.Int64 // changed under replacing, before anything else is
	truncated   *int64       // least offset truncated to since TakeTruncated; guarded by replacing

	bound      atomic.Pointer[boundary] // where the last upper bound that needed a search lies
	loading    sync.Mutex               // held to publish a timestamp that was read from disk
	replacing  sync.Mutex               // held by what takes segments out of the list, but for the last step of roll; before syncing
	syncing    sync.Mutex               // held by Sync, and by what may not run beside it
	settling   sync.Mutex               // held to sync the directory
	moving     sync.Mutex               // held to rename a file that readers may want to open (file.move)
	dirDirty   atomic.Bool              // files were created, renamed or removed since the directory was synced
	unsettled  atomic.Bool              // and so was a .log
	suspicious atomic.Bool              // some segment is suspected
	failed     atomic.Pointer[error]
	closed     atomic.Bool

	// The writer's.
	settings Settings
	vouched  int64 // the owner's checkpoint may say this offset, as of Open, for the recovery point
	unbegun  bool  // the first .log has not been created (New)
}

// A boundary is the position of an offset in a segment's .log. Many readers share one upper bound, an offset below
// the log's end, and only the first has to search for it.
type boundary struct {
	segment          *segment
	offset, position int64
}

// Dir is the log's directory.
func (l *Log) Dir() string { return l.dir }

// Start is the log start offset: the first that may be read.
func (l *Log) Start() int64 { return l.start.Load() }

// First is the base of the first segment, at or below the log start: what lies between the two is still on disk.
func (l *Log) First() int64 { return (*l.segments.Load())[0].base }

// End is the log end offset: the next to be assigned.
func (l *Log) End() int64 { return l.end.Load() }

// Durable is the offset below which everything was synced.
func (l *Log) Durable() int64 { return l.durable.Load() }

// RecoveryPoint is what the owner's checkpoint says for Recovery.RecoveryPoint. It is at most Durable, and less while
// the last segment, durable to its end, may still be followed by another: its indexes aren't, so that a start after a
// crash has to build them anew. It may lie below the log start: what is below that may be read again if the new start
// doesn't survive a crash.
func (l *Log) RecoveryPoint() int64 { return l.recovered.Load() }

// setRecovered sets both points; the caller keeps Sync out.
func (l *Log) setRecovered(offset int64) {
	l.recovered.Store(offset)
	l.durable.Store(offset)
}

// lowerRecovered takes both points back to an offset; the caller keeps Sync out.
func (l *Log) lowerRecovered(offset int64) {
	l.recovered.Store(min(l.recovered.Load(), offset))
	l.durable.Store(min(l.durable.Load(), offset))
}

// raise moves an offset up.
func raise(to *atomic.Int64, offset int64) {
	for {
		at := to.Load()
		if at >= offset || to.CompareAndSwap(at, offset) {
			return
		}
	}
}

// Size is the size of all .log files, in bytes.
func (l *Log) Size() int64 {
	var size int64
	for _, s := range *l.segments.Load() {
		size += s.size.Load()
	}
	return size
}

// ActiveSize is the size of the last segment's .log, in bytes.
func (l *Log) ActiveSize() int64 { return l.active().size.Load() }

// Segments lists the segments, ascending.
func (l *Log) Segments() []Segment {
	segs := *l.segments.Load()
	list := make([]Segment, len(segs))
	for i, s := range segs {
		e := s.extent()
		list[i] = Segment{
			Base: s.base, Next: e.next, Size: e.size,
			OffsetIndexSize: int64(s.offsets.entries()) * offsetEntryLen, TimeIndexSize: int64(s.times.entries()) * timeEntryLen,
		}
		if i > 0 {
			list[i-1].Next = s.base
		}
	}
	return list
}

// Failed is nil, or the ErrFailed that says why the log takes no more writes.
func (l *Log) Failed() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail marks the log failed for good. What it returns is the error of the operation.
func (l *Log) fail(what string, cause error) error {
	err := fmt.Errorf("%s: %s: %w: %w", l.dir, what, ErrFailed, cause)
	l.failed.CompareAndSwap(nil, &err)
	return err
}

func (l *Log) writable() error {
	if l.closed.Load() {
		return fmt.Errorf("%s: %w", l.dir, ErrClosed)
	}
	return l.Failed()
}

// SetSettings changes the settings; segments already written stay as they are.
func (l *Log) SetSettings(s Settings) { l.settings = s.withDefaults() }

func (l *Log) path(base int64, ext string) string {
	b := make([]byte, 0, len(l.dir)+1+nameDigits+len(ExtTimeIndex)+len(SuffixDeleted))
	b = append(b, l.dir...)
	b = append(b, filepath.Separator)
	return string(appendFileName(b, base, ext))
}

// jitterOf is what a segment's roll by time is early, at random among the segments of a node: below the lesser of
// segment.jitter.ms and segment.ms.
func (l *Log) jitterOf(base int64) int64 {
	limit := min(l.settings.SegmentJitterMs, l.settings.SegmentMs)
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", l.dir, base)
	return int64(h.Sum64() % uint64(limit))
}

func (l *Log) active() *segment {
	segs := *l.segments.Load()
	return segs[len(segs)-1]
}

// floorSegment is the number of the last segment whose base is at or below the offset; -1 when there is none.
func floorSegment(segs []*segment, offset int64) int {
	n := len(segs)
	if segs[n-1].base <= offset {
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return segs[i].base > offset }) - 1
}

func (l *Log) outOfRange(offset int64) error {
	return fmt.Errorf("%s: offset %d, log has [%d, %d): %w", l.dir, offset, l.Start(), l.End(), ErrOutOfRange)
}

// begin creates the .log of a new last segment.
func (l *Log) begin(s *segment) error {
	if err := l.settleDir(); err != nil {
		return err
	}
	f, err := l.create(s.data.path())
	if err != nil {
		return err
	}
	s.warm, s.lastTime = true, noTime
	l.changedLogs()
	l.files.add(&s.data, f).leave()
	return nil
}

// changedLogs notes that a .log came, went or was renamed.
func (l *Log) changedLogs() {
	l.dirDirty.Store(true)
	l.unsettled.Store(true)
}

// settleDir makes earlier comings and goings of a .log durable before the next one. So a loss of power can undo at
// most the last, whatever the order in which the file system writes them, and never leaves a hole between segments.
// Where the owner syncs after each roll there is nothing to do here.
func (l *Log) settleDir() error {
	l.settling.Lock()
	defer l.settling.Unlock()
	if !l.unsettled.Load() {
		return nil
	}
	return l.syncDirLocked()
}

// DirChanged tells of files of the owner's that were made or renamed in the log's directory: the recovery point doesn't move before the directory is synced.
func (l *Log) DirChanged() { l.dirDirty.Store(true) }

// dirIsDirty tells whether the directory has to be synced. It waits for a sync that is going on: what that takes care of isn't durable before its end.
func (l *Log) dirIsDirty() bool {
	l.settling.Lock()
	defer l.settling.Unlock()
	return l.dirDirty.Load()
}

func (l *Log) syncDir() error {
	l.settling.Lock()
	defer l.settling.Unlock()
	return l.syncDirLocked()
}

func (l *Log) syncDirLocked() error {
	l.dirDirty.Store(false)
	l.unsettled.Store(false)
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.fail("fsync of the directory", err)
	}
	return nil
}

// swap publishes a new list of segments. The caller keeps out all others that do: a roll by the owner's lock, a
// rewriting by replacing.
func (l *Log) swap(segs []*segment) { l.segments.Store(&segs) }

// edit publishes a changed list of segments, beside a roll or a rewriting.
func (l *Log) edit(change func(segs []*segment) []*segment) {
	for {
		old := l.segments.Load()
		segs := change(*old)
		if l.segments.CompareAndSwap(old, &segs) {
			return
		}
	}
}
