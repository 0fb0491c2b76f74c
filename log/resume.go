package log

import (
	"io"

	"oncelog/internal/vfs"
)

// A recovery point within a segment (Advance) says that the batches and the index entries below it are durable. So the scan of that
// segment begins at the batch that holds the recovery point, found by the last index entry below it; and the entries that are there
// stay. Where the entries don't lead to that batch the segment is scanned whole, as one is of which nothing is known.

// resume finds out how much of a segment that is about to be scanned is known to be good, and takes over the index entries of that.
// whole is what to say where nothing is.
func (o *opener) resume(s *segment, f vfs.File, whole extent) (extent, error) {
	point := o.recovery.RecoveryPoint
	indexed := point > s.base && s.offsets.exists && s.times.exists
	var offsets, times int
	var last, newest entry
	var err error
	if indexed {
		if offsets, last, err = s.offsets.below(o.log.fs, point); err == nil {
			times, newest, err = s.times.below(o.log.fs, point)
		}
	}
	s.hold()
	if err != nil || offsets == 0 {
		return whole, err
	}
	from := whole
	if times > 0 {
		from.maxTime, from.maxTimeOffset = newest.time, newest.offset
	}
	found, firstTime, err := s.walkTo(f, point, last, from)
	switch {
	case err == io.EOF || err != nil && broken(err):
		return whole, nil
	case err != nil:
		return whole, err
	}
	s.offsets.reset(offsets)
	s.times.reset(times)
	s.firstTime, s.sinceEntry = firstTime, found.size-last.position
	if times > 0 {
		s.lastTime = newest.time
	}
	s.indexed = point
	return found, nil
}

// below counts the entries of an index file whose offset is below the given one, and gives the last of them. What is behind may be anything, so
// it is read from the front on, as long as the entries ascend.
func (x *index) below(fsys vfs.FS, offset int64) (n int, last entry, err error) {
	data, err := vfs.ReadFile(fsys, x.path(), int64(x.entries())*int64(x.width))
	if err != nil {
		return 0, last, err
	}
	for ; len(data) >= x.width; data = data[x.width:] {
		e := x.decode(data)
		ascends := n == 0 || e.offset > last.offset && e.position > last.position
		if x.width == timeEntryLen {
			ascends = n == 0 && e.time > 0 || n > 0 && e.time > last.time && e.offset >= last.offset
		} else if e.position == 0 {
			ascends = false // the first batch has no entry
		}
		if !ascends || e.offset >= offset {
			return n, last, nil
		}
		n, last = n+1, e
	}
	return n, last, nil
}

// walkTo goes from the batch of an index entry to the one that holds the offset, and gives the extent before that; and the time that the segment
// begins with. io.EOF: the entry is none, or the log ends before the offset, which is not what a recovery point says.
func (s *segment) walkTo(f vfs.File, offset int64, at entry, e extent) (found extent, firstTime int64, err error) {
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: f, end: s.size.Load(), buf: block[:]}
	first, _, err := w.next()
	if err != nil {
		return e, 0, err
	}
	w.pos, w.have = at.position, 0
	for n := 0; ; n++ {
		hdr, pos, err := w.next()
		switch {
		case err == io.EOF && n > 0 && e.next >= offset:
			return e, first.MaxTimestamp, nil
		case err != nil:
			return e, 0, err
		case n == 0 && hdr.LastOffset() != at.offset, hdr.BaseOffset < e.next:
			return e, 0, io.EOF
		case hdr.LastOffset() >= offset:
			return e, first.MaxTimestamp, nil
		}
		if hdr.MaxTimestamp > e.maxTime {
			e.maxTime, e.maxTimeOffset = hdr.MaxTimestamp, hdr.LastOffset()
		}
		e.size, e.next = pos+int64(hdr.Size), hdr.LastOffset()+1
	}
}

// beginReplay tells the owner where the scan begins, unless it has been told of an earlier segment.
func (o *opener) beginReplay(s *segment, from extent) error {
	if o.recovery.Replay == nil || o.replaying || o.recovery.Clean {
		return nil
	}
	o.replaying = true
	size := s.size.Load()
	s.publish(from)
	o.log.start.Store(o.log.First())
	o.log.end.Store(from.next)
	err := o.recovery.Replay.Begin(o.log, o.report.Others, from.next)
	from.size = size
	s.publish(from)
	return err
}

// replayed tells the owner that a segment has been scanned.
func (o *opener) replayed(s *segment, e extent, scanned bool) error {
	if !scanned || !o.replaying {
		return nil
	}
	return o.recovery.Replay.End(Segment{Base: s.base, Next: e.next, Size: e.size})
}
