package log

import (
	"fmt"
	"io/fs"
	"slices"

	"oncelog/protocol"
)

// What a clean shutdown left is known: the owner wrote down the segments (Log.Segments), and hands them to the next Open
// (Recovery.Segments). What differs is damage that no crash explains.

// left is what the owner knows of the segment at base; ok is false if it knows nothing of the segments.
func (o *opener) left(base int64) (s Segment, ok bool) {
	if !o.recovery.Clean || o.recovery.Segments == nil {
		return s, false
	}
	i := slices.IndexFunc(o.recovery.Segments, func(s Segment) bool { return s.Base == base })
	if i < 0 {
		return Segment{Base: base}, true
	}
	return o.recovery.Segments[i], true
}

// checkLeft compares the .log files with what was left. Bytes behind the end of the last one are recovery's business, all else is lost.
func (o *opener) checkLeft() error {
	segments := o.recovery.Segments
	if !o.recovery.Clean || segments == nil {
		return nil
	}
	for i, s := range segments {
		size, err := o.sizeOf(s.Base)
		switch path := o.log.path(s.Base, ExtLog); {
		case err != nil:
			return err
		case size < 0 && s.Size > 0:
			return fmt.Errorf("%s is missing, it had %d bytes with the offsets from %d to %d: %w", path, s.Size, s.Base, s.Next-1, ErrLost)
		case size < s.Size && s.Size > 0, size > s.Size && i < len(segments)-1:
			return fmt.Errorf("%s has %d bytes, it had %d when it was closed: %w", path, size, s.Size, ErrLost)
		}
	}
	for base := range o.found {
		size, err := o.sizeOf(base)
		if err != nil {
			return err
		}
		if _, known := slices.BinarySearchFunc(segments, base, func(s Segment, base int64) int { return int(min(max(s.Base-base, -1), 1)) }); !known && size > 0 {
			return fmt.Errorf("%s has %d bytes, and wasn't there when the log was closed: %w", o.log.path(base, ExtLog), size, ErrLost)
		}
	}
	return nil
}

// sizeOf is the size of a segment's .log, -1 if there is none.
func (o *opener) sizeOf(base int64) (int64, error) {
	f := o.found[base]
	if f == nil || f.log == nil {
		return -1, nil
	}
	return entrySize(f.log)
}

func entrySize(e fs.DirEntry) (int64, error) {
	st, err := e.Info()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// mayCut refuses a cut into what a clean shutdown left.
func (o *opener) mayCut(s *segment, good extent, cause error) error {
	was, known := o.left(s.base)
	if !known || good.size >= was.Size {
		return nil
	}
	return fmt.Errorf("%s at %d of %d bytes, offset %d: %w: %w", s.data.path(), good.size, was.Size, good.next, ErrLost, cause)
}

// implausible says why the file of an index can't be one; "" if it can.
func (o *opener) implausible(s *segment, x *index, size int64) string {
	was, known := o.left(s.base)
	expected := was.OffsetIndexSize
	if x.width == timeEntryLen {
		expected = was.TimeIndexSize
	}
	switch n := size / int64(x.width); {
	case size%int64(x.width) != 0:
		return fmt.Sprintf("%s has %d bytes, which is no number of entries", x.ext, size)
	case n > s.size.Load()/protocol.BatchHeaderLen+1:
		return fmt.Sprintf("%s has more entries than there are batches", x.ext)
	case known && size != expected:
		return fmt.Sprintf("%s has %d bytes, it had %d when it was closed", x.ext, size, expected)
	}
	return ""
}
