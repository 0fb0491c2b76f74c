package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"oncelog/controlmarkers"
	"oncelog/internal/vfs"
	"oncelog/log"
)

// maxTxnIndexBytes bounds an index that is read whole: more aborts than that don't fit into a segment of 2 GiB.
const maxTxnIndexBytes = math.MaxInt32

// txnIndex is the aborted transactions of a partition: one `.txnindex` file for each segment that holds an abort marker.
// The newest segment's entries are in memory too; the files of the others are searched where they lie.
//
// One goroutine at a time changes it (the partition's lock); readers may come at any time.
type txnIndex struct {
	fsys vfs.FS
	dir  string

	mu struct {
		sync.Mutex
		segments []txnSegment // ascending by base
		unsynced []string     // files that were written to and not synced
		// expected is how many entries the segments' files have where they are as a clean stop left them; nil: not known. It is
		// used once, by check.
		expected map[int64]int
	}
}

// txnSegment is the index of one segment.
type txnSegment struct {
	base int64
	// entries, if loaded. A published prefix never changes.
	entries controlmarkers.Index
	loaded  bool
	written int // of entries, in the file
}

// openTxnIndex takes over the files of the given segments.
func openTxnIndex(fsys vfs.FS, dir string, bases []int64) *txnIndex {
	x := &txnIndex{fsys: fsys, dir: dir}
	slices.Sort(bases)
	for _, base := range bases {
		x.mu.segments = append(x.mu.segments, txnSegment{base: base})
	}
	return x
}

// expect tells how many entries the files should have.
func (x *txnIndex) expect(entries map[int64]int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.expected = entries
	if x.mu.expected == nil {
		x.mu.expected = map[int64]int{}
	}
}

func (x *txnIndex) path(base int64) string {
	return filepath.Join(x.dir, log.FileName(base, extTxnIndex))
}

// add takes in the transaction whose abort marker was appended to the segment at base. An error of the write leaves the entry in
// memory; it is written with the next one, or by flush.
func (x *txnIndex) add(base int64, a controlmarkers.Aborted) error {
	x.mu.Lock()
	s, err := x.tailLocked(base)
	if err == nil {
		s.entries, err = s.entries.Add(a)
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	return x.flush()
}

// tailLocked gives the segment at base, which must be the newest with an index, or newer, with its entries.
func (x *txnIndex) tailLocked(base int64) (*txnSegment, error) {
	n := len(x.mu.segments)
	if n == 0 || x.mu.segments[n-1].base < base {
		if n > 0 { // what it replaces need no longer be in memory, but for what could not be written
			if old := &x.mu.segments[n-1]; old.written == len(old.entries) {
				old.entries, old.loaded, old.written = nil, false, 0
			}
		}
		x.mu.segments = append(x.mu.segments, txnSegment{base: base, loaded: true})
		return &x.mu.segments[n], nil
	}
	s := &x.mu.segments[n-1]
	if s.base != base {
		return nil, fmt.Errorf("abort marker in segment %d behind the index of segment %d: %w", base, s.base, controlmarkers.ErrIndex)
	}
	if s.loaded {
		return s, nil
	}
	entries, err := x.load(base)
	if err != nil {
		return nil, err
	}
	s.entries, s.written, s.loaded = entries, len(entries), true
	return s, nil
}

// load reads the file of a segment whole.
func (x *txnIndex) load(base int64) (controlmarkers.Index, error) {
	data, err := vfs.ReadFile(x.fsys, x.path(base), maxTxnIndexBytes)
	if err != nil {
		return nil, err
	}
	entries, err := controlmarkers.ParseIndex(data, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.path(base), err)
	}
	return entries, nil
}

// check reads the newest index, and the sizes of the others. The segments whose index can't be right come back, ascending.
func (x *txnIndex) check() (bad []int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	expected := x.mu.expected
	x.mu.expected = nil
	for i := range x.mu.segments {
		s := &x.mu.segments[i]
		if s.loaded {
			continue
		}
		if i == len(x.mu.segments)-1 {
			_, err = x.tailLocked(s.base)
		}
		if err == nil {
			err = x.checkSize(s.base, expected)
		}
		delete(expected, s.base)
		switch {
		case errors.Is(err, controlmarkers.ErrIndex):
			bad, err = append(bad, s.base), nil
		case err != nil:
			return bad, err
		}
	}
	for base := range expected { // the file is missing
		bad = append(bad, base)
	}
	slices.Sort(bad)
	return bad, nil
}

// checkSize compares the size of a segment's file with what is expected, if anything is.
func (x *txnIndex) checkSize(base int64, expected map[int64]int) error {
	st, err := x.fsys.Stat(x.path(base))
	if err != nil {
		return err
	}
	n, rest := int(st.Size()/controlmarkers.EntrySize), st.Size()%controlmarkers.EntrySize
	if rest != 0 || expected != nil && n != expected[base] {
		return fmt.Errorf("%s has %d bytes: %w", x.path(base), st.Size(), controlmarkers.ErrIndex)
	}
	return nil
}

// flush writes what is in memory only.
func (x *txnIndex) flush() error {
	x.mu.Lock()
	segments := slices.Clone(x.mu.segments)
	x.mu.Unlock()
	for _, s := range segments {
		if s.written == len(s.entries) {
			continue
		}
		if err := x.write(s); err != nil {
			return err
		}
		x.mu.Lock()
		if i, ok := x.findLocked(s.base); ok {
			x.mu.segments[i].written = len(s.entries)
		}
		if name := x.path(s.base); !slices.Contains(x.mu.unsynced, name) {
			x.mu.unsynced = append(x.mu.unsynced, name)
		}
		x.mu.Unlock()
	}
	return nil
}

func (x *txnIndex) write(s txnSegment) error {
	var data []byte
	for _, a := range s.entries[s.written:] {
		data = a.Append(data)
	}
	f, err := x.fsys.OpenFile(x.path(s.base), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, int64(s.written)*controlmarkers.EntrySize)
	return errors.Join(err, f.Close())
}

func (x *txnIndex) findLocked(base int64) (int, bool) {
	return slices.BinarySearchFunc(x.mu.segments, base, func(s txnSegment, base int64) int { return int(min(max(s.base-base, -1), 1)) })
}

// replace makes entries the index of a segment, in memory and on disk.
func (x *txnIndex) replace(base int64, entries controlmarkers.Index) error {
	x.mu.Lock()
	i, found := x.findLocked(base)
	if found {
		x.mu.segments = slices.Delete(x.mu.segments, i, i+1)
	}
	if len(entries) > 0 {
		x.mu.segments = slices.Insert(x.mu.segments, i, txnSegment{base: base, entries: entries, loaded: true})
	}
	x.mu.Unlock()
	if found {
		if err := remove(x.fsys, x.path(base)); err != nil {
			return err
		}
	}
	return x.flush()
}

// remake makes entries the index of a segment whose file was durable and can't be right. It is durable when this returns: no recovery may
// have to look for it again.
func (x *txnIndex) remake(base int64, entries controlmarkers.Index) error {
	if len(entries) == 0 {
		return x.replace(base, nil)
	}
	var data []byte
	for _, a := range entries {
		data = a.Append(data)
	}
	if err := vfs.WriteFileAtomic(x.fsys, x.path(base), data); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	i, found := x.findLocked(base)
	if !found {
		x.mu.segments = slices.Insert(x.mu.segments, i, txnSegment{base: base})
	}
	x.mu.segments[i] = txnSegment{base: base, entries: entries, loaded: true, written: len(entries)}
	return nil
}

// resume makes the index of a segment what it had of markers below an offset, and entries behind that. ErrIndex: what it had can't be right.
func (x *txnIndex) resume(base, below int64, entries controlmarkers.Index) error {
	x.mu.Lock()
	i, found := x.findLocked(base)
	x.mu.Unlock()
	if !found {
		return x.replace(base, entries)
	}
	data, err := vfs.ReadFile(x.fsys, x.path(base), maxTxnIndexBytes)
	if err != nil {
		return err
	}
	had, err := controlmarkers.ParseIndex(data, base)
	if err != nil {
		return fmt.Errorf("%s: %w", x.path(base), err)
	}
	n := 0
	for n < len(had) && had[n].Last < below {
		n++
	}
	// The part that stays is durable, and is not touched.
	if n < len(had) {
		f, err := x.fsys.OpenFile(x.path(base), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Truncate(int64(n)*controlmarkers.EntrySize), f.Close()); err != nil {
			return err
		}
	}
	x.mu.Lock()
	x.mu.segments[i] = txnSegment{base: base, entries: append(had[:n:n], entries...), loaded: true, written: n}
	if name := x.path(base); n < len(had) && !slices.Contains(x.mu.unsynced, name) {
		x.mu.unsynced = append(x.mu.unsynced, name)
	}
	x.mu.Unlock()
	return x.flush()
}

// drop forgets a segment that was removed from the log, and removes its file.
func (x *txnIndex) drop(base int64) error {
	x.mu.Lock()
	delete(x.mu.expected, base)
	x.mu.Unlock()
	return x.replace(base, nil)
}

// collect gives the aborted transactions that a reader of the offsets [from, to) has to know, ascending by marker.
func (x *txnIndex) collect(dst []controlmarkers.Aborted, from, to int64) ([]controlmarkers.Aborted, error) {
	x.mu.Lock()
	i, found := x.findLocked(from)
	if !found && i > 0 {
		i-- // the segment that begins below from may hold markers above it
	}
	var few [4]txnSegment
	segments := append(few[:0], x.mu.segments[i:]...)
	x.mu.Unlock()
	for _, s := range segments {
		var done bool
		if s.loaded {
			dst, done = s.entries.Collect(dst, from, to)
		} else {
			var err error
			if dst, done, err = x.collectFile(dst, s.base, from, to); err != nil {
				return dst, err
			}
		}
		if done {
			break
		}
	}
	return dst, nil
}

// collectFile is Index.Collect on a file. A missing one belongs to a segment that was removed just now.
func (x *txnIndex) collectFile(dst []controlmarkers.Aborted, base, from, to int64) ([]controlmarkers.Aborted, bool, error) {
	f, err := x.fsys.OpenFile(x.path(base), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return dst, false, err
	}
	n := int(st.Size() / controlmarkers.EntrySize)
	var buf [controlmarkers.EntrySize]byte
	at := func(i int) (controlmarkers.Aborted, error) {
		if _, err := f.ReadAt(buf[:], int64(i)*controlmarkers.EntrySize); err != nil {
			return controlmarkers.Aborted{}, err
		}
		return controlmarkers.ParseAborted(buf[:])
	}
	low, high := 0, n // the first entry with a marker at or above from lies in [low, high]
	for low < high {
		mid := low + (high-low)/2
		a, err := at(mid)
		if err == nil && a.Last < base {
			err = fmt.Errorf("marker at %d in segment %d: %w", a.Last, base, controlmarkers.ErrIndex)
		}
		if err != nil {
			return dst, false, fmt.Errorf("%s: %w", x.path(base), err)
		}
		if a.Last < from {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for ; low < n; low++ {
		a, err := at(low)
		if err != nil {
			return dst, false, fmt.Errorf("%s: %w", x.path(base), err)
		}
		if a.First < to {
			dst = append(dst, a)
		}
		if a.LastStable >= to {
			return dst, true, nil
		}
	}
	return dst, false, nil
}

// takeUnsynced gives the files that have to be synced; who takes them does it.
func (x *txnIndex) takeUnsynced() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.mu.unsynced
	x.mu.unsynced = nil
	return names
}

// remove is Remove for a file that may be gone already.
func remove(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// reaches tells whether there may be an abort marker at or above an offset.
func (x *txnIndex) reaches(offset int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.mu.segments)
	if n == 0 {
		return false
	}
	s := &x.mu.segments[n-1]
	return !s.loaded || len(s.entries) == 0 || s.entries[len(s.entries)-1].Last >= offset
}
