package log

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncelog/protocol"
)

const forever = int64(1) << 50 // ms

// goldenFile is a partition, or a file of it, that Kafka wrote: set/partition[/file].
func goldenFile(name string) string {
	set, rest, _ := strings.Cut(name, "/")
	return filepath.Join("../tests/golden/testdata", set, "data", rest)
}

// The golden partitions that Apache Kafka 4.4.0 wrote in one go, with the settings they had.
var golden = []struct {
	dir      string
	settings Settings
	end      int64
}{
	{"plain/segments-0", Settings{SegmentBytes: 4096, IndexIntervalBytes: 512, SegmentIndexBytes: 1200, SegmentMs: forever}, 120},
	{"plain/codecs-0", Settings{IndexIntervalBytes: 4096, SegmentMs: forever}, 40},
	{"plain/defaults-0", Settings{IndexIntervalBytes: 4096}, 5},
	{"plain/deleted-0", Settings{SegmentBytes: 1000, IndexIntervalBytes: 4096}, 12},
	{"plain/empty-0", Settings{}, 0},
	{"appendtime/appendtime-0", Settings{SegmentBytes: 600, IndexIntervalBytes: 100, SegmentMs: forever}, 15},
	{"txn/txn-0", Settings{SegmentBytes: 700, IndexIntervalBytes: 200, SegmentMs: 604800000}, 37},
	{"killed-recovered/killed-0", Settings{SegmentBytes: 1500, IndexIntervalBytes: 200, SegmentIndexBytes: 1200}, 20},
}

// Kafka's partitions open as they are, and appending their batches to a new log gives the same files, byte by byte.
func TestAppendWritesKafkasBytes(t *testing.T) {
	for _, g := range golden {
		t.Run(g.dir, func(t *testing.T) {
			dir := goldenFile(g.dir)
			kafka := newMem(t)
			load(t, kafka, dir)
			theirs, report := mustOpen(t, kafka, g.settings, Recovery{Clean: true})
			if theirs.End() != g.end || theirs.Start() != 0 || report.Created || len(report.Scanned) > 0 {
				t.Fatalf("[%d, %d), want end %d; %+v", theirs.Start(), theirs.End(), g.end, report)
			}
			batches := collect(t, theirs, 0)
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			checkFiles(t, kafka, dir)

			m := newMem(t)
			ours, _ := mustOpen(t, m, g.settings, Recovery{})
			for _, b := range batches {
				now := time.UnixMilli(b.Header().MaxTimestamp)
				if _, err := ours.Append(b, now); err != nil {
					t.Fatal(err)
				}
			}
			checkBatches(t, collect(t, ours, 0), batches)
			if err := ours.Close(); err != nil {
				t.Fatal(err)
			}
			if g.end > 0 { // a log without batches has no indexes with us
				checkFiles(t, m, dir)
			}
		})
	}
}

// A directory that Kafka left when it was killed becomes what Kafka's own recovery made of it.
func TestRecoveryWritesKafkasBytes(t *testing.T) {
	settings := Settings{SegmentBytes: 1500, IndexIntervalBytes: 200, SegmentIndexBytes: 1200}
	m := newMem(t)
	load(t, m, goldenFile("killed/killed-0"))
	l, report := mustOpen(t, m, settings, Recovery{})
	if l.End() != 20 || len(report.Scanned) != 3 || report.Cut != nil {
		t.Errorf("end %d, %+v", l.End(), report)
	}
	checkFiles(t, m, goldenFile("killed-recovered/killed-0"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, m, goldenFile("killed-recovered/killed-0"))

	// From a recovery point in the middle only the segments from there on are scanned.
	m = newMem(t)
	load(t, m, goldenFile("killed/killed-0"))
	if _, report = mustOpen(t, m, settings, Recovery{RecoveryPoint: 9}); len(report.Scanned) != 2 {
		t.Errorf("scanned %v", report.Scanned)
	}
	checkFiles(t, m, goldenFile("killed-recovered/killed-0"))
}

// All indexes of all golden partitions can be rebuilt: recovery from 0 changes nothing in them. Compacted ones have
// holes between and within segments, and empty segments.
func TestRecoveryRebuildsEveryIndex(t *testing.T) {
	compacted := Settings{SegmentBytes: 600, IndexIntervalBytes: 100}
	all := golden[:len(golden):len(golden)]
	for _, dir := range []string{"compacted/compacted-0", "compacted/twice-0"} {
		all = append(all, struct {
			dir      string
			settings Settings
			end      int64
		}{dir, compacted, map[string]int64{"compacted/compacted-0": 51, "compacted/twice-0": 63}[dir]})
	}
	for _, g := range all {
		for _, r := range []Recovery{{AllowGaps: true}, {Clean: true}} {
			dir := goldenFile(g.dir)
			m := newMem(t)
			load(t, m, dir)
			l, report := mustOpen(t, m, g.settings, r)
			if l.End() != g.end || report.Cut != nil {
				t.Errorf("%s: end %d, want %d; %+v", g.dir, l.End(), g.end, report)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if g.dir != "plain/empty-0" {
				checkFiles(t, m, dir)
			}
		}
	}
}

// Reads in a compacted log: an offset that is gone gives the next batch.
func TestReadInHoles(t *testing.T) {
	m := newMem(t)
	load(t, m, goldenFile("compacted/compacted-0"))
	l, _ := mustOpen(t, m, Settings{}, Recovery{Clean: true})
	batches := collect(t, l, 0)
	for from := int64(0); from < l.End(); from++ {
		s, err := l.Read(from, 1, true, l.End())
		if err != nil {
			t.Fatal(err)
		}
		var want protocol.Batch
		for _, b := range batches {
			if b.Header().LastOffset() >= from {
				want = b
				break
			}
		}
		got := make([]byte, s.Len)
		if s.Len > 0 {
			if _, err := s.ReadAt(got, 0); err != nil {
				t.Fatal(err)
			}
		}
		s.Release()
		if string(got) != string(want) {
			t.Errorf("offset %d: %d bytes, want %d", from, len(got), len(want))
		}
	}
}
