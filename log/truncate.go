package log

import (
	"errors"
	"slices"
	"time"
)

// TruncateTo removes everything at or above the offset, durably. A batch that straddles it goes whole, so that the
// log may end below. The segments that went come back for the owner, which drops what it derived from the offsets at or
// above, and writes its checkpoint of the recovery point before the next append.
//
// An error other than ErrClosed leaves the log failed.
func (l *Log) TruncateTo(offset int64, now time.Time) ([]Removed, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	if offset >= l.end.Load() {
		return nil, nil
	}
	if floorSegment(*l.segments.Load(), offset) < 0 {
		return l.ResetTo(offset, now)
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	l.countTruncation(offset)
	segs := *l.segments.Load()
	i := floorSegment(segs, offset)
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := segs[i].warmUp(); err != nil {
		return nil, l.fail("truncate", err)
	}
	// The end comes first: no reader begins above it any more.
	l.end.Store(offset)
	l.start.Store(min(l.start.Load(), offset))
	l.lowerRecovered(offset)
	l.swap(segs[: i+1 : i+1])
	removed, err := l.retireAll(segs[i+1:])
	if err == nil {
		err = l.cut(segs[i], offset, now)
	}
	if err != nil {
		return removed, l.fail("truncate", err)
	}
	*l.truncated = min(*l.truncated, l.end.Load())
	return removed, nil
}

// countTruncation lets a rewriting see that offsets were given up, and its owner down to where.
func (l *Log) countTruncation(offset int64) {
	l.truncations.Add(1)
	if l.truncated == nil || *l.truncated > offset {
		l.truncated = &offset
	}
}

// Truncations counts what TruncateTo and ResetTo gave up. What was decided by records that a truncation took may not be done: Rewrite
// asks Pace once more when no truncation can come between.
func (l *Log) Truncations() int64 { return l.truncations.Load() }

// TakeTruncated gives the least offset that the log was truncated or reset to since the last call, or since it was opened; ok is
// false if it wasn't.
func (l *Log) TakeTruncated() (offset int64, ok bool) {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	least := l.truncated
	if l.truncated = nil; least == nil {
		return 0, false
	}
	return *least, true
}

// retireAll retires the log's last segments, which are in the list no more: the last one first and each durably before
// the next, so that a crash leaves no hole. They come back ascending.
func (l *Log) retireAll(segs []*segment) ([]Removed, error) {
	var removed []Removed
	for _, s := range slices.Backward(segs) {
		r, err := l.retire(s)
		removed = append(removed, r)
		if err == nil {
			err = l.syncDir()
		}
		if err != nil {
			return removed, err
		}
	}
	slices.Reverse(removed)
	return removed, nil
}

// cut removes the batches at or above the offset from the last segment, which another takes the place of.
func (l *Log) cut(old *segment, offset int64, now time.Time) error {
	h, err := old.data.acquire(0)
	if err != nil {
		return err
	}
	defer h.leave()
	e := old.extent()
	hdr, pos, ok, err := old.find(h, offset, e)
	if err != nil {
		return err
	}
	e.tailSize = 0
	if ok {
		e.size, e.next = pos, min(offset, hdr.BaseOffset)
	} else {
		e.next = offset
	}
	entries := [2]int{}
	for k, x := range []*index{&old.offsets, &old.times} {
		_, last, err := x.floor(byOffset, offset-1)
		if err != nil {
			return err
		}
		entries[k] = last + 1
		if err := x.flush(); err != nil {
			return err
		}
	}
	s := newSegment(l, old.base, old.created)
	s.firstTime, s.indexed = old.firstTime, min(old.indexed, e.next)
	if e.size == 0 {
		s.created, s.firstTime = now.UnixMilli(), unknownTime
	}
	for k, x := range []*index{&s.offsets, &s.times} {
		x.exists, x.longer = true, true
		x.reset(entries[k])
	}
	if err := s.resume(e); err != nil {
		return err
	}
	// A reader that meets the old one finds the new one in the list, and no reader has the file's new content for the
	// old one's.
	segs := slices.Clone(*l.segments.Load())
	segs[len(segs)-1] = s
	l.swap(segs)
	old.removed.Store(true)
	l.end.Store(e.next)
	l.start.Store(min(l.start.Load(), e.next))
	l.lowerRecovered(e.next)
	l.recovered.Store(min(l.recovered.Load(), s.checkpoint(e.next)))
	old.drop()
	// The log comes first: entries of batches that are gone are seen for what they are, batches without their entries are not.
	if err := errors.Join(h.Truncate(e.size), h.Sync()); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.write(), s.times.write()); err != nil {
		return err
	}
	return errors.Join(s.offsets.sync(), s.times.sync())
}

// resume sets the state of a cut segment that the next append goes by.
func (s *segment) resume(e extent) error {
	found := extent{maxTime: noTime, maxTimeOffset: s.base}
	s.lastTime = noTime
	from := entry{}
	if last, ok, err := s.times.last(); err != nil {
		return err
	} else if ok {
		found.maxTime, found.maxTimeOffset, s.lastTime = last.time, last.offset, last.time
		if from, _, err = s.offsets.floor(byOffset, last.offset); err != nil {
			return err
		}
	}
	// Behind its last entry the time index says nothing.
	found, err := s.scanLargest(found, from, e)
	if err != nil {
		return err
	}
	e.maxTime, e.maxTimeOffset = found.maxTime, found.maxTimeOffset
	s.publish(e)
	s.warm = true
	return nil
}

// ResetTo removes everything, durably: the log is empty and begins at the offset, above or below what it held.
func (l *Log) ResetTo(offset int64, now time.Time) ([]Removed, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	l.countTruncation(offset)
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.unbegun {
		l.beginAt(offset, now)
		return nil, nil
	}
	segs := *l.segments.Load()
	l.start.Store(offset)
	l.end.Store(offset)
	l.setRecovered(offset)
	s := newSegment(l, offset, now.UnixMilli())
	l.swap([]*segment{s})
	removed, err := l.retireAll(segs)
	if err == nil {
		err = l.begin(s)
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return removed, l.fail("reset", err)
	}
	return removed, nil
}

// TrimTo raises the log start (DeleteRecords, a follower's leader); below it nothing is read any more. The segments
// stay until RemoveBefore; the owner's checkpoint makes the new start durable. A lower offset changes nothing.
func (l *Log) TrimTo(offset int64) error {
	if err := l.writable(); err != nil {
		return err
	}
	if offset > l.end.Load() {
		return l.outOfRange(offset)
	}
	l.start.Store(max(l.start.Load(), offset))
	return nil
}

// RemoveBefore removes the segments below the one at base, which becomes the first, and raises the log start to it:
// retention, whose policy is the owner's. The recovery point stays: until the next Sync a loss of power may bring the
// removed segments back as they were. The files that were renamed come back for the owner to unlink. Where some
// could be removed and others not, the former come back with the error. ErrOutOfRange when base isn't a segment's.
func (l *Log) RemoveBefore(base int64) ([]Removed, error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	segs := *l.segments.Load()
	n := floorSegment(segs, base)
	if n < 0 || segs[n].base != base {
		return nil, l.outOfRange(base)
	}
	var removed []Removed
	for i := range n {
		if err := l.settleDir(); err != nil {
			return removed, err
		}
		l.start.Store(max(l.start.Load(), segs[i+1].base))
		l.swap(segs[i+1:])
		r, err := l.retire(segs[i])
		removed = append(removed, r)
		if err != nil {
			return removed, l.fail("rename of a removed segment", err)
		}
	}
	return removed, nil
}

// retire renames the files of a segment that is in the list no more.
func (l *Log) retire(s *segment) (Removed, error) {
	e := s.extent()
	r := Removed{Base: s.base, Next: e.next, Size: e.size}
	s.removed.Store(true)
	defer s.drop()
	l.changedLogs()
	for _, f := range s.files() {
		name := f.path()
		switch err := l.fs.Rename(name, name+SuffixDeleted); {
		case err == nil:
			r.Files = append(r.Files, name+SuffixDeleted)
		case !isNotExist(err):
			return r, err
		}
	}
	return r, nil
}
