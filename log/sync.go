package log

import (
	"errors"
	"fmt"
)

// Sync makes everything below upTo durable (the log's end at the most) and moves the recovery point there. It may
// run while the writer appends; the fsyncs don't hold it up. After an error the log is failed: what the disk has is
// unknown, and a second fsync would not tell.
//
// Of the last segment's indexes only what Advance has synced is durable. As long as there is more of them the recovery point stays behind.
func (l *Log) Sync(upTo int64) error { return l.syncTo(upTo, indexesLater) }

// Advance is Sync with the indexes of the last segment as WriteIndexes left them, so that a recovery need not read what lies
// below. upTo is the log's end as of WriteIndexes, and written what that gave.
func (l *Log) Advance(upTo int64, written bool) error {
	if written {
		return l.syncTo(upTo, indexesToo)
	}
	return l.syncTo(upTo, noEntries)
}

// How a sync treats the indexes of the last segment.
type indexSync uint8

const (
	indexesLater indexSync = iota
	indexesToo             // the files have all entries below the offset
	noEntries              // there are none below it
)

func (l *Log) syncTo(upTo int64, indexes indexSync) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	point, err := l.flush(upTo, indexes)
	if err == nil {
		raise(&l.recovered, point)
	}
	return err
}

// WriteIndexes writes the entries of the last segment's indexes that are only in memory to their files; written is false if there are none. It is the
// owner's, as Append is.
func (l *Log) WriteIndexes() (written bool, err error) {
	if err := l.writable(); err != nil {
		return false, err
	}
	s := l.active()
	if s.offsets.entries() == 0 {
		return false, nil // a recovery reads the segment from its start anyway
	}
	return true, errors.Join(s.offsets.write(), s.times.write())
}

// Flush is Sync but for the recovery point, which stays: the owner has something yet to write that belongs below it.
func (l *Log) Flush(upTo int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	_, err := l.flush(upTo, indexesLater)
	return err
}

// flush makes everything below upTo durable, and gives the recovery point that this allows.
func (l *Log) flush(upTo int64, indexes indexSync) (point int64, err error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	upTo = min(upTo, l.end.Load())
	segs := *l.segments.Load()
	active := segs[len(segs)-1]
	switch {
	case active.indexed >= upTo:
		indexes = indexesLater // they are durable
	case indexes == noEntries:
		active.indexed = upTo
	}
	if indexes != indexesToo && upTo <= l.durable.Load() && !l.dirIsDirty() && (upTo > active.base || upTo <= l.recovered.Load()) {
		return active.checkpoint(upTo), nil
	}
	for i, s := range segs {
		if s.synced || s.base >= upTo {
			continue
		}
		// The indexes of the last segment are built anew after a crash; those of the others have to be right.
		files := s.files()
		last := i+1 == len(segs)
		n := len(files)
		if last && indexes != indexesToo {
			n = 1
		}
		for k, f := range files[:n] {
			if k == 0 && last && upTo <= l.durable.Load() {
				continue
			}
			if err := l.syncFile(f); err != nil {
				return 0, err
			}
		}
		s.synced = !last
		if n > 1 {
			s.indexed = max(s.indexed, upTo)
		}
	}
	if l.dirIsDirty() {
		if err := l.syncDir(); err != nil {
			return 0, err
		}
	}
	raise(&l.durable, upTo)
	return active.checkpoint(upTo), nil
}

// checkpoint is the recovery point when everything below an offset, in this last segment, is durable but for what its indexes
// have from indexed on: one less, unless the segment holds nothing. Were it the base of the segment to come, recovery would trust the
// indexes whole, and the last entry of the one by time comes only then.
func (s *segment) checkpoint(durable int64) int64 {
	if durable <= s.base {
		return durable
	}
	if s.offsets.entries() > 0 {
		durable = min(durable, s.indexed)
	}
	return max(s.base, durable-1)
}

func (l *Log) syncFile(f *file) error {
	err := f.sync()
	if err == nil || f.segment.removed.Load() {
		return nil
	}
	return l.fail("fsync of "+f.path(), err)
}

// optional tells of the files of indexes without entries: a segment without batches has none.
func (x *file) optional() bool {
	s := x.segment
	return x == &s.offsets.file && s.offsets.entries() == 0 || x == &s.times.file && s.times.entries() == 0
}

func (x *file) sync() error {
	h, err := x.acquire(0)
	if isNotExist(err) && x.optional() {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.leave()
	return h.Sync()
}

// Quiesce writes the indexes of the active segment and frees the memory that only a log in use needs. Its files are
// closed by Files.CloseIdle.
func (l *Log) Quiesce() error {
	if err := l.writable(); err != nil {
		return err
	}
	l.bound.Store(nil)
	s := l.active()
	if s.offsets.body.Load().tail == nil && s.times.body.Load().tail == nil {
		return nil
	}
	return errors.Join(s.offsets.flush(), s.times.flush())
}

// Close ends the log as a clean shutdown wants it: the indexes are written, with an entry for the greatest timestamp, and everything is
// synced but an index without entries. RecoveryPoint is the log's end then. Slices stay readable until they are released.
func (l *Log) Close() error {
	if err := l.writable(); err != nil {
		l.Abandon()
		if errors.Is(err, ErrClosed) {
			return err
		}
		return fmt.Errorf("closed without its indexes: %w", err)
	}
	end := l.end.Load()
	err := l.active().finish()
	if err == nil {
		err = l.Advance(end, l.active().offsets.entries() > 0)
	}
	l.Abandon()
	if err == nil {
		l.recovered.Store(end)
	}
	return err
}

// Abandon closes the log without writing anything: its directory is to be removed, or has failed.
func (l *Log) Abandon() {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.closed.Swap(true) {
		return
	}
	for _, s := range *l.segments.Load() {
		s.drop()
	}
}
