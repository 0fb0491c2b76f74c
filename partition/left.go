package partition

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"oncelog/controlmarkers"
	"oncelog/internal/vfs"
	"oncelog/log"
)

// A clean stop writes down which segments it left, and how large they and what lies beside them were (segmentsFile), so that the next start
// sees what is gone or changed without reading it:
//
//	1
//	<CRC-32C, 8 hex digits>
//	<topic> <partition> <base> <next offset> <size of .log> <of .index> <of .timeindex> <entries of .txnindex>
//
// The checksum covers the rows and the checkpoints beside, which any broker that has used the directory meanwhile has written anew; the file then
// says nothing. Kafka leaves it alone.
//
// A partition that has lost records stays offline, also at later starts, until somebody decides: the file damageFile in its directory says what
// is lost, and removing it accepts that.

// maxSegmentsBytes bounds what is read of the file: some 500,000 segments.
const maxSegmentsBytes = 64 << 20

const segmentsFields = 8

// leftSegments is what a clean stop left of one partition.
type leftSegments struct {
	segments []log.Segment // ascending
	aborted  map[int64]int // base -> entries of the index of aborted transactions, where there are any
}

// saveSegments writes down what is left, after all else.
func (s *Set) saveSegments() error {
	var rows []string
	for p := range s.All() {
		if p.log != nil && p.txns != nil {
			more, err := p.segmentRows()
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
	}
	slices.Sort(rows)
	data := []byte(strings.Join(rows, ""))
	sum, err := s.tie(data)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(s.shared.fsys, filepath.Join(s.dir, segmentsFile), append(fmt.Appendf(nil, "1\n%08x\n", sum), data...))
}

func (p *Partition) segmentRows() (rows []string, err error) {
	aborted, err := p.txns.counts()
	if err != nil {
		return nil, err
	}
	for _, s := range p.log.Segments() {
		if s.Size > 0 {
			rows = append(rows, fmt.Sprintf("%s %d %d %d %d %d %d %d\n",
				p.topic, p.index, s.Base, s.Next, s.Size, s.OffsetIndexSize, s.TimeIndexSize, aborted[s.Base]))
		}
	}
	return rows, nil
}

// tie is the checksum of rows and of the checkpoints that belong to them.
func (s *Set) tie(rows []byte) (uint32, error) {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum(rows, table)
	for _, name := range []string{recoveryPointFile, logStartFile, cleanerFile} {
		data, err := vfs.ReadFile(s.shared.fsys, filepath.Join(s.dir, name), maxCheckpointBytes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sum = crc32.Update(sum, table, data)
	}
	return sum, nil
}

// readSegments reads what the last clean stop left; nil if that isn't known.
func (s *Set) readSegments() map[key]*leftSegments {
	name := filepath.Join(s.dir, segmentsFile)
	data, err := vfs.ReadFile(s.shared.fsys, name, maxSegmentsBytes)
	if !s.clean || err != nil {
		return nil
	}
	head, rest, _ := bytes.Cut(data, []byte("\n"))
	sum, rows, _ := bytes.Cut(rest, []byte("\n"))
	tie, err := s.tie(rows)
	if string(head) != "1" || err != nil || string(sum) != fmt.Sprintf("%08x", tie) {
		s.shared.logger.Info("what the last stop left isn't known", "dir", s.dir, "file", segmentsFile)
		return nil
	}
	left := map[key]*leftSegments{}
	for line := range strings.Lines(string(rows)) {
		k, segment, aborted, ok := parseSegmentRow(line)
		if !ok {
			return nil // the checksum was right: another version's
		}
		l := left[k]
		if l == nil {
			l = &leftSegments{aborted: map[int64]int{}}
			left[k] = l
		}
		l.segments = append(l.segments, segment)
		if aborted > 0 {
			l.aborted[segment.Base] = aborted
		}
	}
	for _, l := range left {
		slices.SortFunc(l.segments, func(a, b log.Segment) int { return int(min(max(a.Base-b.Base, -1), 1)) })
	}
	return left
}

func parseSegmentRow(line string) (k key, s log.Segment, aborted int, ok bool) {
	f := strings.Fields(line)
	if len(f) != segmentsFields {
		return k, s, 0, false
	}
	var n [segmentsFields]int64
	for i := 1; i < len(f); i++ {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return k, s, 0, false
		}
		n[i] = v
	}
	s = log.Segment{Base: n[2], Next: n[3], Size: n[4], OffsetIndexSize: n[5], TimeIndexSize: n[6]}
	return key{f[0], int32(n[1])}, s, int(n[7]), true
}

// of gives what is known of a partition. One that isn't in the file had no records.
func (s *Set) leftOf(k key) *leftSegments {
	if s.left == nil {
		return nil
	}
	if l := s.left[k]; l != nil {
		return l
	}
	return &leftSegments{segments: []log.Segment{}}
}

// checkDamage gives the error of a partition that was found to have lost records, and for which nobody has decided yet.
func (p *Partition) checkDamage() error {
	name := filepath.Join(p.dir, damageFile)
	data, err := vfs.ReadFile(p.shared.fsys, name, maxMetadataBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s: remove %s to go on without what is lost", strings.TrimSpace(string(data)), name)
}

// holdDamage makes the loss of records known to later starts.
func (p *Partition) holdDamage(cause error) error {
	name := filepath.Join(p.dir, damageFile)
	if err := vfs.WriteFileAtomic(p.shared.fsys, name, []byte(cause.Error()+"\n")); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w: remove %s to go on without what is lost", cause, name)
}

// counts gives the number of entries of each segment's index.
func (x *txnIndex) counts() (map[int64]int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	counts := map[int64]int{}
	for _, s := range x.mu.segments {
		if s.loaded {
			counts[s.base] = len(s.entries)
			continue
		}
		st, err := x.fsys.Stat(x.path(s.base))
		if err != nil {
			return nil, err
		}
		counts[s.base] = int(st.Size() / controlmarkers.EntrySize)
	}
	return counts, nil
}

// openLeft opens the partition and compares it with what a clean stop left, if that is known. A loss stays known.
func (p *Partition) openLeft(r log.Recovery, left *leftSegments, highWatermark int64, now time.Time) error {
	if left == nil {
		return p.open(r, highWatermark, now)
	}
	r.Segments = left.segments
	err := p.open(r, highWatermark, now)
	if errors.Is(err, log.ErrLost) {
		return p.holdDamage(err)
	}
	if err == nil {
		p.txns.expect(left.aborted)
	}
	return err
}
