package inspect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// Decoder is how the records of a log are shown.
type Decoder int

const (
	// DecodeText shows keys and values as text.
	DecodeText Decoder = iota
	// DecodeOffsets is for `__consumer_offsets`.
	DecodeOffsets
	// DecodeTransactions is for `__transaction_state`.
	DecodeTransactions
	// DecodeShareGroups is for `__share_group_state`.
	DecodeShareGroups
	// DecodeMetadata is for Kafka's `__cluster_metadata`.
	DecodeMetadata
)

// DumpOptions are the options of Kafka's tool.
type DumpOptions struct {
	Deep         bool    // records too, not only batches
	Contents     bool    // keys and values of records
	SkipMetadata bool    // nothing of records but their contents
	Decoder      Decoder // of records
	VerifyOnly   bool    // indexes are checked and not printed
	SanityOnly   bool    // only whether a broker would rebuild an index
	BatchBytes   int64   // the longest batch that an index entry may point to; 0 is 5 MiB, as in Kafka
	MaxBytes     int64   // how much of a log is read; 0 is all
}

const (
	defaultBatchBytes = 5 << 20
	maxIndexBytes     = 1 << 31 // what is read of an index
)

// ErrDump is what ends a dump: a file that can't be read further. What was read before has been printed.
var ErrDump = errors.New("can't read on")

// Dump prints what files hold, in the words of Kafka's dump tool: data to stdout, what is wrong with it to stderr. What a file is tells its
// extension. The error is of ErrDump, or one of the file system.
func Dump(fsys vfs.FS, files []string, o DumpOptions, stdout, stderr io.Writer) error {
	if o.BatchBytes <= 0 {
		o.BatchBytes = defaultBatchBytes
	}
	d := dumper{fsys: fsys, o: o, out: bufio.NewWriterSize(stdout, 64<<10), err: stderr}
	var err error
	for _, name := range files {
		if err = d.file(javaPath(name)); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			break
		}
	}
	if flushErr := d.out.Flush(); flushErr != nil {
		return flushErr
	}
	if err == nil {
		d.complaints.print(stderr)
	}
	return err
}

type dumper struct {
	fsys       vfs.FS
	o          DumpOptions
	out        *bufio.Writer
	err        io.Writer
	complaints complaints
}

func (d *dumper) file(name string) error {
	fmt.Fprintf(d.out, "Dumping %s\n", name)
	switch filepath.Ext(name) {
	case log.ExtLog:
		base, err := baseOf(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "Log starting offset: %d\n", base)
		return d.log(name)
	case ".checkpoint":
		if err := d.snapshotTitle(name); err != nil {
			return err
		}
		return d.log(name)
	case log.ExtIndex:
		return d.offsetIndex(name)
	case log.ExtTimeIndex:
		return d.timeIndex(name)
	case log.ExtTxnIndex:
		return d.txnIndex(name)
	case log.ExtSnapshot:
		return d.snapshot(name)
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(d.err, "Ignoring unknown file %s\n", name)
	return nil
}

// snapshotTitle prints what the name of a snapshot of Kafka's metadata says.
func (d *dumper) snapshotTitle(name string) error {
	base := strings.TrimSuffix(filepath.Base(name), ".checkpoint")
	if base == "bootstrap" {
		fmt.Fprintln(d.out, "KRaft bootstrap snapshot")
		return nil
	}
	offset, epoch, err := parseCheckpointName(filepath.Base(name))
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "Snapshot end offset: %d, epoch: %d\n", offset, epoch)
	return nil
}

// parseCheckpointName reads the name of a snapshot of Kafka's metadata: <end offset>-<epoch>.checkpoint.
func parseCheckpointName(name string) (offset int64, epoch int32, err error) {
	first, second, ok := strings.Cut(strings.TrimSuffix(name, ".checkpoint"), "-")
	offset, err1 := strconv.ParseInt(first, 10, 64)
	wide, err2 := strconv.ParseInt(second, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%w: the name is that of no snapshot", ErrDump)
	}
	return offset, int32(wide), nil
}

// baseOf reads the offset that a file's name begins with.
func baseOf(name string) (int64, error) {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	base, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the name doesn't begin with an offset", ErrDump)
	}
	return base, nil
}

// beside is the file of the same segment with another extension.
func beside(name, ext string) string {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	return filepath.Join(filepath.Dir(name), digits+ext)
}

func (d *dumper) txnIndex(name string) error {
	data, err := vfs.ReadFile(d.fsys, name, maxIndexBytes)
	if err != nil {
		return err
	}
	for ; len(data) >= controlmarkers.EntrySize; data = data[controlmarkers.EntrySize:] {
		a, err := controlmarkers.ParseAborted(data)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDump, err)
		}
		fmt.Fprintf(d.out, "version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", a.ProducerID, a.First, a.Last, a.LastStable)
	}
	return nil
}

func (d *dumper) snapshot(name string) error {
	data, err := vfs.ReadFile(d.fsys, name, maxIndexBytes)
	if err != nil {
		return err
	}
	entries, err := idempotence.ParseSnapshot(data)
	if err != nil {
		if err := d.out.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(d.err, snapshotFault(data))
		return nil
	}
	for _, e := range entries {
		txn := "OptionalLong.empty"
		if e.TxnFirstOffset >= 0 {
			txn = fmt.Sprintf("OptionalLong[%d]", e.TxnFirstOffset)
		}
		fmt.Fprintf(d.out, "producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			e.ProducerID, e.Epoch, e.CoordinatorEpoch, txn, e.Timestamp)
		if e.LastOffset >= 0 {
			fmt.Fprintf(d.out, " firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d",
				protocol.AddSequence(e.LastSequence, -e.OffsetDelta), e.LastSequence, e.LastOffset, e.OffsetDelta, e.Timestamp)
		}
		fmt.Fprintln(d.out)
	}
	return nil
}

// snapshotFault says in Kafka's words why a snapshot can't be read.
func snapshotFault(data []byte) string {
	if len(data) < 10 {
		return "Snapshot failed schema validation: null"
	}
	if version := int16(binary.BigEndian.Uint16(data)); version != 1 {
		return fmt.Sprintf("Snapshot failed schema validation: Snapshot contained an unknown file version %d", version)
	}
	stored, computed := binary.BigEndian.Uint32(data[2:]), crc32.Checksum(data[6:], crc32.MakeTable(crc32.Castagnoli))
	if stored != computed {
		return fmt.Sprintf("Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", stored, computed)
	}
	return "Snapshot failed schema validation: null"
}

// complaints is what is wrong with data and is told at the end, by file.
type complaints struct {
	index       findings // index entries whose batch has another offset
	mismatch    findings // time index entries whose batch has another timestamp
	disorder    findings // time index entries that don't rise
	notFound    findings // time index entries without their batch
	consecutive findings // records whose offset isn't the one behind the record before
}

// findings are pairs of numbers by file, files in the order in which they were first told.
type findings struct {
	files []string
	pairs map[string][][2]int64
}

func (f *findings) add(file string, a, b int64) {
	if f.pairs == nil {
		f.pairs = map[string][][2]int64{}
	}
	if f.pairs[file] == nil {
		f.files = append(f.files, file)
	}
	f.pairs[file] = append(f.pairs[file], [2]int64{a, b})
}

// ordered gives the files in the order in which Kafka's tool tells of them.
func (f *findings) ordered() []string {
	n := len(f.files)
	if n == 0 {
		return nil
	}
	return javaMapOrder(f.files, len(f.pairs[f.files[n-1]]))
}

// unique keeps the last of the pairs that begin alike, ascending.
func unique(pairs [][2]int64) [][2]int64 {
	byFirst := map[int64]int64{}
	for _, p := range pairs {
		byFirst[p[0]] = p[1]
	}
	kept := make([][2]int64, 0, len(byFirst))
	for a, b := range byFirst {
		kept = append(kept, [2]int64{a, b})
	}
	slices.SortFunc(kept, func(a, b [2]int64) int { return int(min(max(a[0]-b[0], -1), 1)) })
	return kept
}

func (c *complaints) print(w io.Writer) {
	for _, file := range c.index.ordered() {
		fmt.Fprintf(w, "Mismatches in :%s\n", file)
		for _, p := range slices.Backward(unique(c.index.pairs[file])) {
			fmt.Fprintf(w, "  Index offset: %d, log offset: %d\n", p[0], p[1])
		}
	}
	for _, file := range c.mismatch.ordered() {
		fmt.Fprintf(w, "Found timestamp mismatch in :%s\n", file)
		for _, p := range c.mismatch.pairs[file] {
			fmt.Fprintf(w, "  Index timestamp: %d, log timestamp: %d\n", p[0], p[1])
		}
	}
	for _, file := range c.disorder.ordered() {
		fmt.Fprintf(w, "Found out of order timestamp in :%s\n", file)
		for _, p := range c.disorder.pairs[file] {
			fmt.Fprintf(w, "  Index timestamp: %d, Previously indexed timestamp: %d\n", p[0], p[1])
		}
	}
	for _, file := range c.notFound.ordered() {
		fmt.Fprintf(w, "The following indexed offsets are not found in :%s\n", file)
		for _, p := range c.notFound.pairs[file] {
			fmt.Fprintf(w, "Indexed offset: %d, found log offset: %d\n", p[0], p[1])
		}
	}
	for _, file := range c.consecutive.ordered() {
		fmt.Fprintf(w, "Non-consecutive offsets in %s\n", file)
		for _, p := range unique(c.consecutive.pairs[file]) {
			fmt.Fprintf(w, "  %d is followed by %d\n", p[0], p[1])
		}
	}
}

// javaPath is a path as Java's File prints it.
func javaPath(name string) string {
	for strings.Contains(name, "//") {
		name = strings.ReplaceAll(name, "//", "/")
	}
	if len(name) > 1 {
		name = strings.TrimSuffix(name, "/")
	}
	return name
}

// absolute is a path's absolute form, in which Java leaves dots.
func absolute(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	dir, err := os.Getwd()
	if err != nil {
		return name
	}
	return dir + string(filepath.Separator) + name
}
