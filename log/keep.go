package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// SuffixCut ends the name of what recovery took out of the log and what still holds whole batches: the rest of a segment behind a
// damaged batch, or a whole segment behind that. Nothing reads or removes it: that is for people.
const SuffixCut = ".cut"

// maxCuts bounds how many files of one name are kept.
const maxCuts = 1000

// keepTail puts what lies behind the good part of a segment aside, durably, if there are whole batches in it.
func (o *opener) keepTail(s *segment, good extent, cut *Cut) error {
	size := s.size.Load()
	if good.size == size {
		return nil
	}
	f, err := o.log.fs.OpenFile(s.data.path(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := searchBatches(f, good.size, size, good.next, s.base)
	if err != nil || found.batches == 0 {
		return err
	}
	name, err := o.copyAside(f, good.size, size, o.log.path(good.next, ExtLog))
	if err != nil {
		return err
	}
	cut.kept(name, found)
	return nil
}

func (c *Cut) kept(name string, found searched) {
	c.Kept = append(c.Kept, filepath.Base(name))
	c.Batches += found.batches
	c.Records += found.records
}

// copyAside copies a part of a file to a new file with SuffixCut. What a start before, which didn't get to the end, has copied is
// taken as it is.
func (o *opener) copyAside(f io.ReaderAt, from, to int64, path string) (string, error) {
	for i := range maxCuts {
		name := cutName(path, i)
		there, err := o.log.fs.OpenFile(name, os.O_RDONLY, 0)
		switch {
		case isNotExist(err):
			return name, o.copyTo(name, f, from, to)
		case err != nil:
			return name, err
		}
		same, err := sameContent(there, io.NewSectionReader(f, from, to-from))
		there.Close()
		if err != nil || same {
			return name, err
		}
	}
	return "", fmt.Errorf("%s: there are %d of these already", cutName(path, 0), maxCuts)
}

func cutName(path string, i int) string {
	if i == 0 {
		return path + SuffixCut
	}
	return path + SuffixCut + "." + strconv.Itoa(i)
}

// copyTo makes a durable file; a crash leaves all of it or none.
func (o *opener) copyTo(name string, f io.ReaderAt, from, to int64) error {
	fsys, tmp := o.log.fs, name+".tmp"
	out, err := fsys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	buf := copies.Get().(*[copyLen]byte)
	defer copies.Put(buf)
	for at := from; at < to && err == nil; at += copyLen {
		part := buf[:min(copyLen, to-at)]
		if _, err = io.ReadFull(io.NewSectionReader(f, at, to-at), part); err == nil {
			_, err = out.WriteAt(part, at-from)
		}
	}
	if err == nil {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return o.log.syncDir()
}

func sameContent(a vfs.File, b *io.SectionReader) (bool, error) {
	st, err := a.Stat()
	if err != nil || st.Size() != b.Size() {
		return false, err
	}
	var x, y [4096]byte
	for at := int64(0); at < b.Size(); at += int64(len(x)) {
		n := min(int64(len(x)), b.Size()-at)
		if _, err := a.ReadAt(x[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if _, err := b.ReadAt(y[:n], at); err != nil && err != io.EOF {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// retireKeeping retires the segments behind a cut, as retireAll does, but the .log of those that hold whole batches is kept.
func (o *opener) retireKeeping(segs []*segment, cut *Cut) (removed []Removed, err error) {
	for _, s := range slices.Backward(segs) {
		r, err := o.retireOne(s, cut)
		removed = append(removed, r)
		if err == nil {
			err = o.log.syncDir()
		}
		if err != nil {
			return removed, err
		}
	}
	slices.Reverse(removed)
	slices.Sort(cut.Kept)
	return removed, nil
}

func (o *opener) retireOne(s *segment, cut *Cut) (Removed, error) {
	found, err := o.searchSegment(s)
	if err != nil {
		return Removed{}, err
	}
	if found.batches > 0 {
		name, err := o.freeName(s.data.path())
		if err == nil {
			err = o.log.fs.Rename(s.data.path(), name)
		}
		if err != nil {
			return Removed{}, err
		}
		cut.kept(name, found)
	}
	return o.log.retire(s)
}

func (o *opener) searchSegment(s *segment) (searched, error) {
	f, err := o.log.fs.OpenFile(s.data.path(), os.O_RDONLY, 0)
	if err != nil {
		return searched{}, err
	}
	defer f.Close()
	return searchBatches(f, 0, s.size.Load(), s.base, s.base)
}

// freeName is the first name for a kept file that isn't taken.
func (o *opener) freeName(path string) (string, error) {
	for i := range maxCuts {
		name := cutName(path, i)
		if _, err := o.log.fs.Stat(name); isNotExist(err) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%s: there are %d of these already", cutName(path, 0), maxCuts)
}

// searched is what a search found: whole batches, and the records in them that aren't markers.
type searched struct{ batches, records int64 }

// searchBatches looks in a part of a .log for whole batches whose offsets rise from next on, wherever they begin, and checks their CRC.
func searchBatches(f io.ReaderAt, from, to, next, base int64) (found searched, err error) {
	buf := copies.Get().(*[copyLen]byte)
	defer copies.Put(buf)
	w := walker{f: f, pos: from, end: to, buf: buf[:]}
	for {
		if w.pos, err = nextCandidate(f, w.pos, to, next, base); err != nil || w.pos < 0 {
			return found, err
		}
		pos := w.pos
		hdr, _, err := w.checkNext()
		switch {
		case err == nil:
			found.batches++
			if !hdr.Control() {
				found.records += int64(hdr.NumRecords)
			}
			next = hdr.LastOffset() + 1
		case broken(err) || err == io.EOF:
			w.pos = pos + 1
		default:
			return found, err
		}
	}
}

// nextCandidate is where a batch could begin, at a position or behind it: with an offset that can follow, a length that fits and
// magic 2. -1 if there is none.
func nextCandidate(f io.ReaderAt, pos, end, next, base int64) (int64, error) {
	buf := copies.Get().(*[copyLen]byte)
	defer copies.Put(buf)
	for pos+protocol.BatchHeaderLen <= end {
		part := buf[:min(copyLen, end-pos)]
		if n, err := f.ReadAt(part, pos); n < len(part) {
			return -1, unexpectedEOF(err)
		}
		last := len(part) - protocol.BatchHeaderLen
		for i := 0; i <= last; i++ {
			if part[i+16] != 2 {
				continue
			}
			offset := int64(binary.BigEndian.Uint64(part[i:]))
			length := int64(int32(binary.BigEndian.Uint32(part[i+8:])))
			if offset >= next && offset-base <= math.MaxInt32 && length >= protocol.BatchHeaderLen-12 && pos+int64(i)+12+length <= end {
				return pos + int64(i), nil
			}
		}
		pos += int64(last) + 1
	}
	return -1, nil
}

// SearchBatches looks in a part of a .log of the segment at base for whole batches whose offsets rise from next on, wherever they begin, and
// counts them and their records but for markers: what a recovery would keep of what lies behind a bad place.
func SearchBatches(f io.ReaderAt, from, to, next, base int64) (batches, records int64, err error) {
	found, err := searchBatches(f, from, to, next, base)
	return found.batches, found.records, err
}
