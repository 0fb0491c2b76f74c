package log

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// Errors of this package; the facts are wrapped around them.
var (
	// ErrOutOfRange: an offset below the log's start or above its end.
	ErrOutOfRange = errors.New("offset out of range")
	// ErrCorrupt: what is on disk isn't what was written there.
	ErrCorrupt = errors.New("corrupt log")
	// ErrLost: records that a clean shutdown left are gone. It is an ErrCorrupt.
	ErrLost = fmt.Errorf("%w: records are lost", ErrCorrupt)
	// ErrUnsupportedMagic: a segment of message format 0 or 1, which Oncelog doesn't read.
	ErrUnsupportedMagic = errors.New("unsupported message format")
	// ErrFailed: a write or an fsync went wrong so that nothing is known of the files any more. It is final:
	// the log takes no writes until it is opened anew.
	ErrFailed = errors.New("log failed")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log closed")
)

// Settings are what a topic's configuration says about its segments. They may change while a log is open
// (SetSettings); what has been written stays as it is.
type Settings struct {
	SegmentBytes       int32 // segment.bytes, or internal.segment.bytes for small ones; 0 is 1 GiB
	SegmentMs          int64 // segment.ms; for a compacted topic the lesser of it and max.compaction.lag.ms; 0 is 7 days
	SegmentJitterMs    int64 // segment.jitter.ms
	IndexIntervalBytes int32 // index.interval.bytes
	SegmentIndexBytes  int32 // segment.index.bytes, of each index; 0 is 10 MiB
}

// Options are what a log needs of its node.
type Options struct {
	// Files is the cache of open files, shared by all logs of a replica set. Nil is a cache for this log alone.
	Files    *Files
	Settings Settings
}

// Recovery is what the owner knows of a log's state on disk when it opens it.
type Recovery struct {
	// Clean: the log was closed, and nothing but a clean shutdown followed. Its files are trusted.
	Clean bool
	// RecoveryPoint is the offset below which everything was synced, by the owner's checkpoint (0: nothing
	// known). Unless Clean, the segment that holds it and all behind are scanned.
	RecoveryPoint int64
	// LogStart is the log start offset by the owner's checkpoint; 0 or less: the first segment's base.
	LogStart int64
	// AllowGaps: offsets may be missing between two segments (the topic is or was compacted). Otherwise a gap
	// above the recovery point is the lost end of a segment, and what lies behind it is cut off.
	AllowGaps bool
	// Replay, if not nil, is told of what is scanned after a crash, so that nobody has to read it again.
	Replay Replay
	// Segments is what Log.Segments said when the log was closed, for a clean start; nil: not known.
	Segments []Segment
}

// A Replay follows the scan that a recovery makes. An error ends it.
type Replay interface {
	// Begin comes first: the first batch that is scanned has the offset from, or holds it. The log can be read below; others are names in
	// the directory that are not log's.
	Begin(l *Log, others []string, from int64) error
	// Batch is told of each batch that is good. b is the batch, or nil if that has more than 64 KiB; h and b are valid until the call
	// returns.
	Batch(segment int64, h *protocol.BatchHeader, b protocol.Batch) error
	// End is told of each segment when all of its batches were.
	End(Segment) error
}

func (s Settings) withDefaults() Settings {
	if s.SegmentBytes <= 0 {
		s.SegmentBytes = 1 << 30
	}
	if s.SegmentMs <= 0 {
		s.SegmentMs = 7 * 24 * time.Hour.Milliseconds()
	}
	if s.SegmentIndexBytes <= 0 {
		s.SegmentIndexBytes = 10 << 20
	}
	return s
}

// A Removed is a segment that is no longer part of the log. Its files have been renamed to <name>.deleted; the
// owner does the same with its own files of the segment, and unlinks all when nobody needs them any more.
type Removed struct {
	Base  int64    // its base offset
	Next  int64    // the base of the segment behind, or the log's end; what it held lies in [Base, Next)
	Size  int64    // of its .log, in bytes
	Files []string // paths of the renamed files
}

// Unlink removes the renamed files. Readers that still have a Slice of them are not disturbed.
func (r Removed) Unlink(fsys vfs.FS) error {
	var errs []error
	for _, name := range r.Files {
		if err := fsys.Remove(name); err != nil && !isNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// A Report says what Open found and did; the owner logs it and acts on it.
type Report struct {
	Created bool      // there was no segment: the first one was made
	Reset   bool      // the log ended below Recovery.LogStart: all was removed, and it begins there, empty
	Scanned []int64   // bases of the segments that were scanned and whose indexes were built anew
	Rebuilt []Rebuilt // trusted segments among these, whose indexes were damaged or missing
	Cut     *Cut      // nil unless the end of a segment was cut off
	Removed []Removed // segments that lay behind a cut or a gap (see Cut.Kept), or all when Reset
	// Swapped: segments that a compaction had finished took the place of the old ones. Forgotten: one that hadn't was given up.
	Swapped, Forgotten bool
	Others             []string // names in the directory that are not log's: snapshots, transaction indexes, checkpoints, foreign ones
}

// A Rebuilt is a segment whose indexes were built anew, and why.
type Rebuilt struct {
	Base  int64
	Cause string
}

// A Cut is the end of a segment that recovery cut off.
type Cut struct {
	Offset int64 // the log's end after the cut
	Bytes  int64 // what was cut
	Cause  error // what was wrong with the first batch cut; nil when it merely wasn't whole

	// What lay behind the bad place in whole batches was kept.
	Kept             []string // names of the files (SuffixCut)
	Batches, Records int64    // that they hold; markers are no records
}

// Appended says where a batch went.
type Appended struct {
	Segment  int64 // base offset of the segment that holds the batch
	Position int64 // of the batch in the segment's .log
	Rolled   bool  // that segment was begun for it, also when Append fails. The owner's state as of before the batch is the snapshot for Segment
}

// A Segment describes one segment to retention and to tools.
type Segment struct {
	Base int64
	Next int64 // base of the segment behind, the log's end for the last
	Size int64 // of the .log, in bytes

	OffsetIndexSize, TimeIndexSize int64 // of the indexes' entries, in bytes
}

// A TimestampOffset is a record found by its timestamp.
type TimestampOffset struct {
	Offset      int64
	Timestamp   int64 // milliseconds
	LeaderEpoch int32 // of the record's batch
}
