package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// defaultFiles is the number of files that a log without a shared cache keeps open.
const defaultFiles = 64

// Open opens the log in a directory, which exists, or begins one in it. After a clean shutdown it lists the directory
// and reads the end of the last segment; otherwise it scans what may not be durable and cuts off what isn't whole.
// Files that aren't log's own are left alone and listed in the report.
//
// ErrUnsupportedMagic: the log has a segment of an old message format. ErrCorrupt: what the owner says is durable
// can't be read; ErrLost: it isn't there. Nothing has been changed then.
func Open(fsys vfs.FS, dir string, o Options, r Recovery, now time.Time) (*Log, Report, error) {
	l := &Log{fs: fsys, dir: dir, files: o.Files, settings: o.Settings.withDefaults()}
	if l.files == nil {
		l.files = NewFiles(fsys, defaultFiles)
	}
	op := opener{log: l, recovery: r, now: now}
	if err := op.open(); err != nil {
		l.Abandon()
		return nil, op.report, fmt.Errorf("open %s: %w", dir, err)
	}
	return l, op.report, nil
}

// An opener holds what Open learns on its way.
type opener struct {
	log      *Log
	recovery Recovery
	now      time.Time
	report   Report
	found    map[int64]*segmentFiles
	swaps    []string // names with SuffixSwap
	cleaned  int64    // least base among the names with SuffixCleaned; -1 for none

	replaying    bool      // the owner has been told that a scan begins
	implausibles []Rebuilt // indexes that were not taken for one
}

// segmentFiles are a segment's files as listed; nil for a missing one.
type segmentFiles struct{ log, index, times fs.DirEntry }

func (o *opener) open() error {
	l := o.log
	empty := []*segment{}
	l.segments.Store(&empty)
	if err := o.list(); err != nil {
		return err
	}
	if err := o.checkLeft(); err != nil {
		return err
	}
	if err := o.load(); err != nil {
		return err
	}
	segs := *l.segments.Load()
	if len(segs) == 0 {
		return o.begin(max(0, o.recovery.LogStart))
	}
	if err := o.recover(segs); err != nil {
		return err
	}
	segs = *l.segments.Load()
	end := segs[len(segs)-1].extent().next
	l.end.Store(end)
	l.start.Store(max(segs[0].base, o.recovery.LogStart))
	if end < l.start.Load() {
		return o.reset()
	}
	l.vouched = end
	if o.recovery.Clean {
		last := segs[len(segs)-1]
		if !last.offsets.hold {
			last.indexed = end
		}
		if last.size.Load() == 0 {
			l.changedLogs() // nobody has synced the directory of an empty log
		}
		l.setRecovered(end)
		l.recovered.Store(last.checkpoint(end))
	} else {
		l.setRecovered(max(0, min(o.recovery.RecoveryPoint, end)))
		l.changedLogs() // whoever made, renamed or removed a file last may not have come to sync the directory
	}
	return nil
}

// begin makes the first segment.
func (o *opener) begin(offset int64) error {
	o.log.unbegun = true
	o.log.beginAt(offset, o.now)
	o.report.Created = true
	return o.log.Begin()
}

// reset removes a log that ends below its start: the owner's checkpoint of the start is newer than what survived.
func (o *opener) reset() error {
	removed, err := o.log.ResetTo(o.recovery.LogStart, o.now)
	o.report.Removed = append(o.report.Removed, removed...)
	o.report.Reset = true
	return err
}

// list reads the directory, removes what earlier deletions and compactions left, and completes a compaction that was
// about to replace segments.
func (o *opener) list() error {
	entries, err := o.log.fs.ReadDir(o.log.dir)
	if err != nil {
		return err
	}
	o.sort(entries)
	if o.cleaned < 0 && len(o.swaps) == 0 {
		return nil
	}
	if err := o.removeCleaned(entries); err != nil {
		return err
	}
	if err := o.finishSwaps(entries); err != nil {
		return err
	}
	if entries, err = o.log.fs.ReadDir(o.log.dir); err != nil {
		return err
	}
	o.sort(entries)
	return nil
}

// sort puts each name where it belongs. What was to be deleted is, as far as possible: a file that stays is tried
// again at the next start.
func (o *opener) sort(entries []fs.DirEntry) {
	o.found, o.swaps, o.cleaned, o.report.Others = map[int64]*segmentFiles{}, nil, -1, nil
	for _, e := range entries {
		name := e.Name()
		base, ext, ok := ParseFileName(name)
		main, suffix, _ := strings.Cut(strings.TrimPrefix(ext, "."), ".")
		if !ok || e.IsDir() || !segmentExt("."+main) && (suffix != SuffixDeleted[1:] || "."+main != ExtSnapshot) {
			o.report.Others = append(o.report.Others, name)
			continue
		}
		switch {
		case suffix == "" && "."+main == ExtTxnIndex:
			o.report.Others = append(o.report.Others, name)
		case suffix == "":
			o.note(base, "."+main, e)
		case "."+suffix == SuffixDeleted:
			if o.log.fs.Remove(filepath.Join(o.log.dir, name)) == nil {
				o.log.dirDirty.Store(true)
			}
		case "."+suffix == SuffixSwap:
			o.swaps = append(o.swaps, name)
		case "."+suffix == SuffixCleaned:
			if o.cleaned < 0 || base < o.cleaned {
				o.cleaned = base
			}
		default:
			o.report.Others = append(o.report.Others, name)
		}
	}
}

func segmentExt(ext string) bool {
	return ext == ExtLog || ext == ExtIndex || ext == ExtTimeIndex || ext == ExtTxnIndex
}

func (o *opener) note(base int64, ext string, e fs.DirEntry) {
	f := o.found[base]
	if f == nil {
		f = &segmentFiles{}
		o.found[base] = f
	}
	switch ext {
	case ExtLog:
		f.log = e
	case ExtIndex:
		f.index = e
	case ExtTimeIndex:
		f.times = e
	}
}

// load makes the segments from what was listed.
func (o *opener) load() error {
	bases := make([]int64, 0, len(o.found))
	for base, f := range o.found {
		if f.log == nil {
			if err := o.removeOrphans(base, f); err != nil {
				return err
			}
			continue
		}
		bases = append(bases, base)
	}
	slices.Sort(bases)
	segs := make([]*segment, len(bases))
	for i, base := range bases {
		s, err := o.loadSegment(base, o.found[base])
		if err != nil {
			return err
		}
		segs[i] = s
		if i > 0 {
			e := segs[i-1].extent()
			e.next = base
			segs[i-1].publish(e)
		}
	}
	o.log.swap(segs)
	return nil
}

// removeOrphans removes indexes without their .log.
func (o *opener) removeOrphans(base int64, f *segmentFiles) error {
	for ext, e := range map[string]fs.DirEntry{ExtIndex: f.index, ExtTimeIndex: f.times} {
		if e == nil {
			continue
		}
		if err := o.log.fs.Remove(o.log.path(base, ext)); err != nil {
			return err
		}
		o.log.dirDirty.Store(true)
	}
	return nil
}

func (o *opener) loadSegment(base int64, f *segmentFiles) (*segment, error) {
	s := newSegment(o.log, base, o.now.UnixMilli())
	st, err := f.log.Info()
	if err != nil {
		return nil, err
	}
	e := s.extent()
	e.size = st.Size()
	if e.size > 0 {
		e.maxTime = unknownTime
	}
	s.publish(e)
	for _, x := range []struct {
		index *index
		entry fs.DirEntry
	}{{&s.offsets, f.index}, {&s.times, f.times}} {
		if x.entry == nil {
			continue
		}
		st, err := x.entry.Info()
		if err != nil {
			return nil, err
		}
		if why := o.implausible(s, x.index, st.Size()); why != "" {
			x.index.longer = true
			o.implausibles = append(o.implausibles, Rebuilt{base, why})
			continue
		}
		x.index.exists = true
		x.index.reset(int(st.Size() / int64(x.index.width)))
	}
	return s, nil
}

// checkMagic refuses a segment whose first batch is of message format 0 or 1. Zeros behind a length, which a loss of
// power can leave, look like one, but their CRC is wrong.
func (s *segment) checkMagic(f io.ReaderAt) error {
	size := s.size.Load()
	var head [protocol.BatchHeaderLen]byte
	if n, _ := f.ReadAt(head[:], 0); n < 17 || size < 17 {
		return nil
	}
	_, err := batchSize(head[:], 0)
	if !errors.Is(err, ErrUnsupportedMagic) {
		return nil
	}
	// magic 0 and 1: offset 8, size 4, CRC-32 of all behind it 4, magic 1
	end := int64(binary.BigEndian.Uint32(head[8:])) + 12
	if end > size {
		return nil
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 16, end-16)); err != nil {
		return err
	}
	if sum.Sum32() != binary.BigEndian.Uint32(head[12:]) {
		return nil
	}
	return fmt.Errorf("%s: %w", s.data.path(), err)
}
