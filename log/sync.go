package log

import (
	"errors"
	"fmt"
)

// Sync makes everything below upTo durable (the log's end at the most) and moves the recovery point there. It may
// run while the writer appends; the fsyncs don't hold it up. After an error the log is failed: what the disk has is
// unknown, and a second fsync would not tell.
func (l *Log) Sync(upTo int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	point, err := l.flush(upTo)
	if err == nil {
		raise(&l.recovered, point)
	}
	return err
}

// Flush is Sync but for the recovery point, which stays: the owner has something yet to write that belongs below it.
func (l *Log) Flush(upTo int64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	_, err := l.flush(upTo)
	return err
}

// flush makes everything below upTo durable, and gives the recovery point that this allows.
func (l *Log) flush(upTo int64) (point int64, err error) {
	if err := l.writable(); err != nil {
		return 0, err
	}
	upTo = min(upTo, l.end.Load())
	segs := *l.segments.Load()
	active := segs[len(segs)-1]
	if upTo <= l.durable.Load() && (upTo > active.base || upTo <= l.recovered.Load()) {
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
		if last {
			n = 1
		}
		for _, f := range files[:n] {
			if err := l.syncFile(f); err != nil {
				return 0, err
			}
		}
		s.synced = !last
	}
	if l.dirDirty.Load() {
		if err := l.syncDir(); err != nil {
			return 0, err
		}
	}
	raise(&l.durable, upTo)
	return active.checkpoint(upTo), nil
}

// checkpoint is the recovery point when everything below an offset, in this last segment, is durable but its indexes:
// one less, unless the segment holds nothing. Were it the base of the segment to come, recovery would trust them.
func (s *segment) checkpoint(durable int64) int64 {
	if durable > s.base {
		return durable - 1
	}
	return durable
}

func (l *Log) syncFile(f *file) error {
	err := f.sync()
	if err == nil || f.segment.removed.Load() {
		return nil
	}
	return l.fail("fsync of "+f.path(), err)
}

func (x *file) sync() error {
	h, err := x.acquire(0)
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

// Close ends the log as a clean shutdown wants it: the indexes are written, with an entry for the greatest timestamp.
// Nothing is synced; the owner called Sync before if it is going to say that the shutdown was clean. Slices stay
// readable until they are released. RecoveryPoint is the log's end now if Durable is.
func (l *Log) Close() error {
	if err := l.writable(); err != nil {
		l.Abandon()
		if errors.Is(err, ErrClosed) {
			return err
		}
		return fmt.Errorf("closed without its indexes: %w", err)
	}
	err := l.active().finish()
	l.Abandon()
	if err == nil && l.durable.Load() == l.end.Load() {
		l.recovered.Store(l.end.Load())
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
