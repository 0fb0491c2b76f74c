package log

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recover brings the segments into the state that readers and appends need. Trusted ones get an index where it is
// missing or can't be one, and the end of the last is looked up; the others are scanned. A scanned segment that ends
// with something else than a whole batch, or before the next begins, is the last one.
func (o *opener) recover(segs []*segment) error {
	scanFrom := len(segs)
	if !o.recovery.Clean {
		scanFrom = max(0, floorSegment(segs, o.recovery.RecoveryPoint))
	}
	last := len(segs) - 1
	for i, s := range segs {
		s.synced = i < scanFrom && i < last
		found, cause, err := o.recoverSegment(s, i >= scanFrom, i == 0, i == last)
		if err != nil {
			return err
		}
		size := s.size.Load()
		lost := i < last && i >= scanFrom && o.gap(found.next, segs[i+1].base)
		if lost || found.size < size {
			err := o.mayCut(s, found, cause)
			if err == nil {
				err = o.cutAt(segs, i, found, cause)
			}
			if err == nil {
				err = o.replayed(s, found, i >= scanFrom)
			}
			return err
		}
		if i < last {
			found.next = segs[i+1].base
		}
		s.publish(found)
		if err := o.replayed(s, found, i >= scanFrom); err != nil {
			return err
		}
		switch {
		case !s.offsets.hold:
		case i == last && i >= scanFrom && s.offsets.entries() == 0:
			// Too small for an index. It gets its files as a segment does that was not closed: at the roll or the close.
			s.offsets.hold, s.times.hold = false, false
		default:
			if err := o.writeIndexes(s, i < scanFrom || o.vouched(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// gap says whether what follows a scanned segment can't belong to the log: the segment has lost its end. Below the
// recovery point nothing was lost, and in a compacted log offsets may be missing anywhere.
func (o *opener) gap(end, nextBase int64) bool {
	return end < nextBase && end >= o.recovery.RecoveryPoint && !o.recovery.AllowGaps
}

// cutAt ends the log with what the i-th segment was found to hold. Whole batches behind are kept in other files. The segments behind
// go first: were the cut durable without that, the next start would take them for the log's.
func (o *opener) cutAt(segs []*segment, i int, found extent, cause error) error {
	s := segs[i]
	o.report.Cut = &Cut{Offset: found.next, Bytes: s.size.Load() - found.size, Cause: cause}
	if cause == errPartial {
		o.report.Cut.Cause = nil
	}
	if o.report.Cut.Bytes == 0 {
		o.report.Cut.Cause = fmt.Errorf("offsets from %d to %d are missing: %w", found.next, segs[i+1].base, ErrCorrupt)
	}
	if err := o.keepTail(s, found, o.report.Cut); err != nil {
		return err
	}
	o.log.swap(segs[: i+1 : i+1])
	removed, err := o.retireKeeping(segs[i+1:], o.report.Cut)
	o.report.Removed = append(o.report.Removed, removed...)
	if err != nil {
		return err
	}
	h, err := s.data.acquire(0)
	if err != nil {
		return err
	}
	err = h.Truncate(found.size)
	h.leave()
	if err != nil {
		return err
	}
	s.publish(found)
	return o.writeIndexes(s, o.vouched(s))
}

// vouched tells of a segment that was scanned whole although the recovery point lies in it: it goes on vouching for the index entries below.
func (o *opener) vouched(s *segment) bool {
	return !o.recovery.Clean && o.recovery.RecoveryPoint > s.base && s.offsets.body.Load().inFile == 0
}

// recoverSegment finds out what the segment holds, as an extent, and whether a cause ended it before its file does.
// It changes nothing on disk. A segment that was scanned has its index entries in memory (index.hold).
func (o *opener) recoverSegment(s *segment, scan, first, last bool) (found extent, cause, err error) {
	found = s.extent()
	indexed := found.size == 0 || s.offsets.exists && s.times.exists
	if !scan && indexed && !first && !last {
		return found, nil, nil
	}
	if scan {
		o.report.Scanned = append(o.report.Scanned, s.base)
	}
	if found.size == 0 {
		found.next = s.base
		if scan {
			if err := o.beginReplay(s, found); err != nil {
				return found, nil, err
			}
		}
		s.warm, s.lastTime = true, noTime
		if s.offsets.longer || s.times.longer || s.offsets.entries() > 0 || s.times.entries() > 0 {
			s.hold()
		}
		return found, nil, nil
	}
	f, err := o.log.fs.OpenFile(s.data.path(), os.O_RDONLY, 0)
	if err != nil {
		return found, nil, err
	}
	defer f.Close()
	if err := s.checkMagic(f); err != nil {
		return found, nil, err
	}
	if !scan && indexed {
		if !last {
			return found, nil, nil
		}
		end, err := s.readEnd(f)
		if err == nil || !broken(err) {
			return end, nil, err
		}
	}
	if !scan {
		o.report.Scanned = append(o.report.Scanned, s.base)
	}
	from := extent{next: s.base, maxTime: noTime, maxTimeOffset: s.base}
	if !scan {
		s.hold()
	} else {
		if from, err = o.resume(s, f, from); err != nil {
			return found, nil, err
		}
		if err = o.beginReplay(s, from); err != nil {
			return found, nil, err
		}
	}
	var tell func(*protocol.BatchHeader, protocol.Batch) error
	if scan && o.recovery.Replay != nil {
		tell = func(h *protocol.BatchHeader, b protocol.Batch) error { return o.recovery.Replay.Batch(s.base, h, b) }
	}
	found, cause, err = s.scan(f, from, int64(o.log.settings.IndexIntervalBytes), tell)
	if err == nil && cause != nil && !scan && !last {
		err = fmt.Errorf("%s below the recovery point: %w", s.data.path(), cause)
	}
	if err == nil && cause == nil && !scan {
		o.report.Rebuilt = append(o.report.Rebuilt, o.whyRebuilt(s, indexed))
	}
	return found, cause, err
}

// whyRebuilt says what is wrong with the indexes of a trusted segment, which had both or not.
func (o *opener) whyRebuilt(s *segment, indexed bool) Rebuilt {
	if indexed {
		return Rebuilt{s.base, ExtIndex + " doesn't fit the log"}
	}
	for _, r := range o.implausibles {
		if r.Base == s.base {
			return r
		}
	}
	missing := ExtIndex
	if s.offsets.exists {
		missing = ExtTimeIndex
	}
	return Rebuilt{s.base, missing + " is missing"}
}

// broken says whether the error is about what the file holds, not about reading it.
func broken(err error) bool {
	return errors.Is(err, errPartial) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupportedMagic)
}

// readEnd finds the end of a segment that was closed, from its last index entry on.
func (s *segment) readEnd(f vfs.File) (extent, error) {
	e := s.extent()
	defer s.drop()
	from, ok, err := s.offsets.last()
	if err != nil {
		return e, err
	}
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: f, pos: from.position, end: e.size, buf: block[:]}
	e.next = s.base
	for first := true; ; first = false {
		hdr, _, err := w.next()
		switch {
		case err == io.EOF && !(first && ok):
			return e, nil
		case err == io.EOF, err == nil && (hdr.BaseOffset < e.next || first && ok && hdr.LastOffset() != from.offset):
			return e, fmt.Errorf("%s: end of the segment: %w", s.data.path(), ErrCorrupt)
		case err != nil:
			return e, err
		}
		e.next = hdr.LastOffset() + 1
	}
}

// hold gives up what the index files have: the entries are collected in memory until they are written.
func (s *segment) hold() {
	for _, x := range []*index{&s.offsets, &s.times} {
		x.longer = x.longer || x.exists
		x.hold = true
		x.reset(0)
	}
	s.lastTime, s.sinceEntry, s.warm = noTime, 0, true
}

// scan goes through the segment from what is known to be good on, checks each batch, tells of it if anybody wants to know, and collects the
// index entries behind those that are there. found is what is good; cause what ended it, nil for the end of the file.
func (s *segment) scan(f vfs.File, from extent, interval int64, tell func(*protocol.BatchHeader, protocol.Batch) error) (found extent, cause, err error) {
	buf := copies.Get().(*[copyLen]byte)
	defer copies.Put(buf)
	w := walker{f: f, pos: from.size, end: s.size.Load(), buf: buf[:]}
	found = from
	var hdr protocol.BatchHeader // one for all: tell has it escape
	for {
		var b protocol.Batch
		hdr, b, err = w.checkNext()
		switch {
		case err == io.EOF:
			s.sinceEntry = 0 // as of a segment that was just opened
			return found, nil, nil
		case err == nil && (hdr.BaseOffset < found.next || hdr.LastOffset()-s.base > math.MaxInt32):
			// The CRC doesn't cover it.
			err = fmt.Errorf("batch at %d has base offset %d, at least %d expected: %w", found.size, hdr.BaseOffset, found.next, ErrCorrupt)
		}
		if err != nil && broken(err) {
			s.sinceEntry = 0
			return found, err, nil
		}
		if err != nil {
			return found, nil, err
		}
		if err := s.reserve(interval); err != nil {
			return found, nil, err
		}
		if tell != nil {
			if err := tell(&hdr, b); err != nil {
				return found, nil, err
			}
		}
		s.noteBatch(&found, &hdr, found.size, interval)
		found.size += int64(hdr.Size)
		found.next = hdr.LastOffset() + 1
	}
}

// checkNext is next with the batch's CRC checked, in memory bounded by the buffer. The batch is nil if it is larger.
func (w *walker) checkNext() (protocol.BatchHeader, protocol.Batch, error) {
	hdr, pos, err := w.next()
	if err != nil {
		return hdr, nil, err
	}
	const covered = 21 // where the bytes begin that the CRC is of
	end := w.pos
	sum := uint32(0)
	var whole protocol.Batch
	for w.pos = pos; w.pos < end; {
		b, err := w.bytes(int(min(end-w.pos, int64(len(w.buf)))))
		if err != nil {
			return hdr, nil, err
		}
		if len(b) == int(hdr.Size) {
			whole = b
		}
		part := b
		if w.pos == pos {
			part = b[covered:]
		}
		sum = crc32.Update(sum, castagnoli, part)
		w.pos += int64(len(b))
	}
	if sum != hdr.CRC {
		return hdr, nil, fmt.Errorf("batch at %d has CRC %#08x, its bytes %#08x: %w", pos, hdr.CRC, sum, ErrCorrupt)
	}
	return hdr, whole, nil
}

// writeIndexes puts down the indexes of a scanned segment. Those of a trusted one, or of a trusted part, must be durable before it counts
// as indexed: the .index, which its owner looks for, comes last.
func (o *opener) writeIndexes(s *segment, trusted bool) error {
	defer s.drop()
	if trusted && s.offsets.exists {
		if err := o.log.fs.Remove(s.offsets.path()); err != nil {
			return err
		}
		s.offsets.exists = false
		if err := o.log.syncDir(); err != nil {
			return err
		}
	}
	if err := s.finish(); err != nil || !trusted {
		return err
	}
	if err := errors.Join(o.log.syncFile(&s.times.file), o.log.syncFile(&s.offsets.file)); err != nil {
		return err
	}
	return o.log.syncDir()
}
