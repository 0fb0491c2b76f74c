package log

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// Append writes one batch behind the log's end with one system call. The batch has been checked and has its base
// offset, at or above the end, and its leader epoch; it is the caller's again when Append returns. A new segment is
// begun before it where Kafka's rules say so.
//
// After an error the log is as before, except for a segment that was begun (Appended.Rolled), and may be tried again:
// a full disk. With ErrFailed it may not.
func (l *Log) Append(b protocol.Batch, now time.Time) (Appended, error) {
	if err := l.writable(); err != nil {
		return Appended{}, err
	}
	hdr := b.Header()
	if end := l.end.Load(); hdr.BaseOffset < end || int(hdr.Size) != len(b) || hdr.LastOffsetDelta < 0 {
		return Appended{}, fmt.Errorf("%s: batch of %d bytes with header %+v at end %d: %w", l.dir, len(b), hdr, end, ErrOutOfRange)
	}
	if err := l.ensureBegun(); err != nil {
		return Appended{}, err
	}
	s := l.active()
	if err := s.warmUp(); err != nil {
		return Appended{}, err
	}
	var done Appended
	if l.shouldRoll(s, &hdr, now) {
		next, err := l.roll(s, max(l.end.Load(), hdr.BaseOffset), now)
		if err != nil {
			return Appended{}, err
		}
		s, done.Rolled = next, true
	}
	done.Segment = s.base
	e := s.extent()
	done.Position = e.size
	if err := s.reserve(int64(l.settings.IndexIntervalBytes)); err != nil {
		return done, err
	}
	if err := l.write(s, b, e.size); err != nil {
		return done, err
	}
	s.noteBatch(&e, &hdr, e.size, int64(l.settings.IndexIntervalBytes))
	e.size += int64(len(b))
	e.next = hdr.LastOffset() + 1
	e.tail, e.tailSize = hdr.BaseOffset, int64(len(b))
	s.publish(e)
	l.end.Store(e.next)
	return done, nil
}

// write puts the batch at the segment's end. What a failed write left is cut off.
func (l *Log) write(s *segment, b []byte, pos int64) error {
	h, err := s.data.acquire(0)
	if err != nil {
		return err
	}
	defer h.leave()
	_, err = h.WriteAt(b, pos)
	if err == nil {
		return nil
	}
	if cutErr := h.Truncate(pos); cutErr != nil {
		return l.fail("cut after a failed write", errors.Join(err, cutErr))
	}
	return err
}

// shouldRoll says whether the batch needs a new segment: it doesn't fit by segment.bytes, the segment is too old, an
// index is full, or the batch's last offset is too far from the segment's base. An empty segment is never too small
// or too old.
func (l *Log) shouldRoll(s *segment, hdr *protocol.BatchHeader, now time.Time) bool {
	if hdr.LastOffset()-s.base > math.MaxInt32 {
		return true
	}
	size := s.size.Load()
	if size == 0 {
		return false
	}
	entries := int64(l.settings.SegmentIndexBytes)
	return size > int64(l.settings.SegmentBytes)-int64(hdr.Size) ||
		s.waited(now, hdr.MaxTimestamp) > l.settings.SegmentMs-s.jitter ||
		int64(s.offsets.entries()) >= entries/offsetEntryLen ||
		int64(s.times.entries()) >= entries/timeEntryLen-1
}

// waited is how long the segment has been filled, in ms: by the batches' timestamps where the first one has any, as
// Kafka has it, else by the clock.
func (s *segment) waited(now time.Time, timestamp int64) int64 {
	if s.firstTime >= 0 {
		return timestamp - s.firstTime
	}
	return now.UnixMilli() - s.created
}

// Roll begins a new segment at the log's end. It does nothing when the active one is empty; base is that of the
// active segment afterwards.
func (l *Log) Roll(now time.Time) (base int64, rolled bool, err error) {
	if err := l.writable(); err != nil {
		return 0, false, err
	}
	s := l.active()
	if s.size.Load() == 0 {
		return s.base, false, nil
	}
	if err := s.warmUp(); err != nil {
		return s.base, false, err
	}
	next, err := l.roll(s, l.end.Load(), now)
	if err != nil {
		return s.base, false, err
	}
	return next.base, true, nil
}

// roll makes a segment at base the active one. The old one's indexes are finished first; if anything fails the old
// one stays active.
func (l *Log) roll(old *segment, base int64, now time.Time) (*segment, error) {
	if err := old.finish(); err != nil {
		return nil, err
	}
	if base <= l.vouched { // nothing has been appended since, and from now on the old segment is trusted
		if err := errors.Join(l.syncFile(&old.times.file), l.syncFile(&old.offsets.file)); err != nil {
			return nil, err
		}
	}
	s := newSegment(l, base, now.UnixMilli())
	if err := l.begin(s); err != nil {
		return nil, err
	}
	// Nobody may take a hole before the first batch, which a follower can be given, for the old segment's.
	e := old.extent()
	e.next, e.tailSize = base, 0
	old.publish(e)
	l.edit(func(segs []*segment) []*segment { return append(slices.Clip(segs), s) })
	return s, nil
}

// create makes an empty .log. One that is there already must be empty, too: it is what a roll left that failed.
func (l *Log) create(name string) (vfs.File, error) {
	f, err := l.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	if f, err = l.fs.OpenFile(name, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != 0 {
		err = fmt.Errorf("%s exists and has %d bytes: %w", name, st.Size(), ErrCorrupt)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
