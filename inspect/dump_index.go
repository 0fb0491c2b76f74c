package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sort"

	"oncelog/internal/vfs"
	"oncelog/log"
)

// The lengths of index entries.
const (
	offsetEntryLen = 8
	timeEntryLen   = 12
)

// offsetEntry is one of a `.index`; timeEntry one of a `.timeindex`.
type (
	offsetEntry struct{ offset, position int64 }
	timeEntry   struct{ timestamp, offset int64 }
)

func parseOffsetIndex(data []byte, base int64) []offsetEntry {
	entries := make([]offsetEntry, 0, len(data)/offsetEntryLen)
	for ; len(data) >= offsetEntryLen; data = data[offsetEntryLen:] {
		entries = append(entries, offsetEntry{
			base + int64(int32(binary.BigEndian.Uint32(data))), int64(int32(binary.BigEndian.Uint32(data[4:]))),
		})
	}
	return entries
}

func parseTimeIndex(data []byte, base int64) []timeEntry {
	entries := make([]timeEntry, 0, len(data)/timeEntryLen)
	for ; len(data) >= timeEntryLen; data = data[timeEntryLen:] {
		entries = append(entries, timeEntry{
			int64(binary.BigEndian.Uint64(data)), base + int64(int32(binary.BigEndian.Uint32(data[8:]))),
		})
	}
	return entries
}

func (d *dumper) offsetIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	data, err := vfs.ReadFile(d.fsys, name, maxIndexBytes)
	if err != nil {
		return err
	}
	f, size, err := d.open(beside(name, log.ExtLog))
	if err != nil {
		return err
	}
	defer f.Close()
	entries := parseOffsetIndex(data, base)
	if len(entries) == 0 {
		fmt.Fprintf(d.out, "%s is empty.\n", name)
		return nil
	}
	if d.o.SanityOnly {
		return d.sane(name, int64(len(data)), offsetEntryLen, "Index", entries[len(entries)-1].offset < base)
	}
	for i, e := range entries {
		// The index of a segment that was being written may have zeros behind its entries.
		if e.offset == base && i > 0 {
			return nil
		}
		if e.position < 0 || e.position > size {
			return fmt.Errorf("entry %d: %w: position %d, the log has %d bytes", i, ErrDump, e.position, size)
		}
		s := newScanner(f, min(size, e.position+d.o.BatchBytes))
		s.pos = e.position
		b, _, err := s.next()
		if err != nil {
			return fmt.Errorf("entry %d: %w: position %d: %w", i, ErrDump, e.position, err)
		}
		if last := b.Header().LastOffset(); last != e.offset {
			d.complaints.index.add(absolute(name), e.offset, last)
		}
		if !d.o.VerifyOnly {
			fmt.Fprintf(d.out, "offset: %d position: %d\n", e.offset, e.position)
		}
	}
	return nil
}

func (d *dumper) open(name string) (vfs.File, int64, error) {
	f, err := d.fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, st.Size(), nil
}

// sane says whether a broker would take an index as it is.
func (d *dumper) sane(name string, size, entryLen int64, what string, below bool) error {
	if below {
		return fmt.Errorf("%w: corrupt index, its last offset is less than the base offset", ErrDump)
	}
	if size%entryLen != 0 {
		return fmt.Errorf("%w: %s file %s is corrupt, found %d bytes which is neither positive nor a multiple of %d",
			ErrDump, what, absolute(name), size, entryLen)
	}
	fmt.Fprintf(d.out, "%s passed sanity check.\n", name)
	return nil
}

func (d *dumper) timeIndex(name string) error {
	base, err := baseOf(name)
	if err != nil {
		return err
	}
	data, err := vfs.ReadFile(d.fsys, name, maxIndexBytes)
	if err != nil {
		return err
	}
	offsets, err := vfs.ReadFile(d.fsys, beside(name, log.ExtIndex), maxIndexBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, size, err := d.open(beside(name, log.ExtLog))
	if err != nil {
		return err
	}
	defer f.Close()
	entries, index := parseTimeIndex(data, base), parseOffsetIndex(offsets, base)
	if d.o.SanityOnly {
		n := len(entries)
		return d.sane(name, int64(len(data)), timeEntryLen, "Time index", n > 0 && (entries[n-1].offset < base || entries[n-1].timestamp < entries[0].timestamp))
	}
	before := int64(-1)
	for i, e := range entries {
		if e.offset == base && i > 0 {
			return nil
		}
		s := newScanner(f, size)
		s.pos = floorPosition(index, e.offset)
		if err := d.timeEntry(s, name, e, before); err != nil {
			return fmt.Errorf("entry %d: %w: %w", i, ErrDump, err)
		}
		if !d.o.VerifyOnly {
			fmt.Fprintf(d.out, "timestamp: %d offset: %d\n", e.timestamp, e.offset)
		}
		before = e.timestamp
	}
	return nil
}

// floorPosition is where to begin the search for an offset.
func floorPosition(index []offsetEntry, offset int64) int64 {
	i := sort.Search(len(index), func(i int) bool { return index[i].offset > offset })
	if i == 0 {
		return 0
	}
	return index[i-1].position
}

// timeEntry looks for the batch of an entry from s on, and for what is wrong with the entry.
func (d *dumper) timeEntry(s *scanner, name string, e timeEntry, before int64) error {
	file := absolute(name)
	for {
		b, _, err := s.next()
		if err == io.EOF || errors.Is(err, errTail) {
			d.complaints.notFound.add(file, e.offset, -1)
			return nil
		}
		if err != nil {
			return err
		}
		h := b.Header()
		switch last := h.LastOffset(); {
		case last < e.offset:
			continue
		case last > e.offset:
			d.complaints.notFound.add(file, e.offset, last)
			return nil
		}
		largest := int64(-1)
		rr := b.Records(math.MaxInt32)
		for rr.Next() {
			largest = max(largest, h.Timestamp(rr.Record().TimestampDelta))
		}
		rr.Close()
		if err := rr.Err(); err != nil {
			return err
		}
		if largest != e.timestamp {
			d.complaints.mismatch.add(file, e.timestamp, largest)
		}
		if before >= e.timestamp {
			d.complaints.disorder.add(file, e.timestamp, before)
		}
		return nil
	}
}
