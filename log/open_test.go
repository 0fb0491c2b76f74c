package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// three makes a closed log of three segments with bases 0, 2 and 4, and returns its batches, one an offset.
func three(t testing.TB, m *vfs.Mem) []protocol.Batch {
	t.Helper()
	l, _ := mustOpen(t, m, Settings{SegmentBytes: 450, IndexIntervalBytes: 100}, Recovery{})
	var batches []protocol.Batch
	for i := range int64(5) {
		b := makeBatch(t, i, 1, 1000+i, 200)
		mustAppend(t, l, b)
		batches = append(batches, b)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := bases(l); got != "[0 2 4]" {
		t.Fatalf("segments %s", got)
	}
	return batches
}

func TestCreate(t *testing.T) {
	m := newMem(t)
	l, report := mustOpen(t, m, Settings{}, Recovery{})
	if !report.Created || l.Start() != 0 || l.End() != 0 || l.Size() != 0 {
		t.Errorf("[%d, %d), %+v", l.Start(), l.End(), report)
	}
	if got := fmt.Sprint(list(t, m)); got != "[00000000000000000000.log]" {
		t.Errorf("files %s", got)
	}
	if l.files.Open() != 0 {
		t.Error("a new log holds a file open")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := len(list(t, m)); got != 1 {
		t.Errorf("%d files after close", got)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	for _, err := range []error{
		errOf(l.Append(makeBatch(t, 0, 1, 0, 80), clock)), errOf(l.Read(0, 1, true, 1)), l.Sync(1), l.TrimTo(0), l.Quiesce(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("closed log: %v", err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// A clean start reads the directory and, of a log with batches, only the ends of the first and the last segment.
func TestCleanOpenTouchesLittle(t *testing.T) {
	m := newMem(t)
	three(t, m)
	var ops []string
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		ops = append(ops, op.Kind.String()+" "+strings.TrimPrefix(op.Name, "/p/00000000000000000"))
		return nil
	})
	l, report := mustOpen(t, fsys, Settings{}, Recovery{Clean: true})
	if l.End() != 5 || l.Durable() != 5 || l.RecoveryPoint() != 4 || len(report.Scanned) != 0 {
		t.Errorf("[%d, %d), %+v", l.Start(), l.End(), report)
	}
	want := "[readdir /p open 000.log read 000.log close 000.log open 004.log read 004.log read 004.log close 004.log]"
	if got := fmt.Sprint(ops); got != want {
		t.Errorf("operations %s", got)
	}
	ops = nil
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(ops) != 0 {
		t.Errorf("closing an untouched log did %v", ops)
	}
	if l.files.Open() != 0 {
		t.Error("a file stayed open")
	}
}

// Whatever is cut off a log's end, at any byte, the whole batches before it survive, and nothing else.
func TestTornTailAtEveryByte(t *testing.T) {
	m := newMem(t)
	batches := three(t, m)
	tail := get(t, m, "/p/00000000000000000002.log")
	for cut := range len(tail) + 1 {
		for _, zeros := range []int{0, 100} {
			c := m.CrashClone(nil)
			put(t, c, "/p/00000000000000000002.log", append(tail[:cut:cut], make([]byte, zeros)...))
			l, report := mustOpen(t, c, Settings{SegmentBytes: 450, IndexIntervalBytes: 100}, Recovery{RecoveryPoint: 2})
			whole := 2
			for content := get(t, c, "/p/00000000000000000002.log"); whole < 4 && bytes.HasPrefix(content, batches[whole]); whole++ {
				content = content[len(batches[whole]):] // zeros may complete a batch that ends with some
			}
			if cut == len(tail) && zeros == 0 {
				whole = 5
			}
			checkBatches(t, collect(t, l, 0), batches[:whole])
			if whole < 5 && (report.Cut == nil || len(report.Removed) != 1 || report.Removed[0].Base != 4) {
				t.Fatalf("cut %d: %+v", cut, report)
			}
			l.Abandon()
		}
	}
}

// Above the recovery point a flipped byte ends the log; below it, and after a clean stop, nobody looks.
func TestFlippedByte(t *testing.T) {
	for pos := range 200 {
		m := newMem(t)
		batches := three(t, m)
		data := get(t, m, "/p/00000000000000000002.log")
		data[pos] ^= 0x10
		put(t, m, "/p/00000000000000000002.log", data)
		l, report := mustOpen(t, m.CrashClone(nil), Settings{}, Recovery{RecoveryPoint: 2})
		if free := pos < 8 || pos >= 12 && pos < 16; !free { // base offset and leader epoch aren't covered by the CRC
			checkBatches(t, collect(t, l, 0), batches[:2])
			if report.Cut == nil {
				t.Errorf("byte %d: %+v", pos, report.Cut)
			}
		}
		for _, r := range []Recovery{{Clean: true}, {RecoveryPoint: 4}} {
			l, report = mustOpen(t, m.CrashClone(nil), Settings{}, r)
			if report.Cut != nil || l.End() != 5 {
				t.Errorf("byte %d: end %d, %+v", pos, l.End(), report)
			}
		}
	}
}

func TestIndexesAreRebuilt(t *testing.T) {
	for _, r := range []Recovery{{Clean: true}, {RecoveryPoint: 4}, {}} {
		for _, damage := range []func(m *vfs.Mem, name string){
			func(m *vfs.Mem, name string) { m.Remove(name) },
			func(m *vfs.Mem, name string) { put(t, m, name, []byte("12345")) },
			func(m *vfs.Mem, name string) { put(t, m, name, make([]byte, 10_485_756)) },
		} {
			for _, names := range [][]string{{ExtIndex}, {ExtTimeIndex}, {ExtIndex, ExtTimeIndex}} {
				m := newMem(t)
				batches := three(t, m)
				want := map[string]string{}
				for _, name := range list(t, m) {
					want[name] = string(get(t, m, "/p/"+name))
				}
				for _, base := range []int64{0, 2, 4} {
					for _, ext := range names {
						damage(m, "/p/"+FileName(base, ext))
					}
				}
				l, report := mustOpen(t, m, Settings{SegmentBytes: 450, IndexIntervalBytes: 100}, r)
				if fmt.Sprint(report.Scanned) != "[0 2 4]" {
					t.Errorf("scanned %v", report.Scanned)
				}
				checkBatches(t, collect(t, l, 0), batches)
				if err := l.Close(); err != nil { // the last segment is too small for an index before
					t.Fatal(err)
				}
				for name, data := range want {
					if got := string(get(t, m, "/p/"+name)); got != data {
						t.Errorf("%s: %x, want %x", name, got, data)
					}
				}
			}
		}
	}
}

// A segment that is trusted and has lost its index is not cut when it can't be read: the partition stops.
func TestTrustedSegmentIsNeverCut(t *testing.T) {
	m := newMem(t)
	three(t, m)
	m.Remove("/p/00000000000000000002.index")
	data := get(t, m, "/p/00000000000000000002.log")
	data[100] ^= 1
	put(t, m, "/p/00000000000000000002.log", data)
	before := m.CrashClone(nil)
	if _, _, err := Open(m, "/p", Options{}, Recovery{Clean: true}, clock); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
	if got := get(t, m, "/p/00000000000000000002.log"); string(got) != string(data) || fmt.Sprint(list(t, m)) != fmt.Sprint(list(t, before)) {
		t.Error("a refused log was changed")
	}
}

// The end of a segment can be lost while the next survives. In a log that was never compacted that is a hole, and
// the next goes; in a compacted one it is as it should be.
func TestGapBetweenSegments(t *testing.T) {
	for _, allow := range []bool{false, true} {
		m := newMem(t)
		batches := three(t, m)
		data := get(t, m, "/p/00000000000000000002.log")
		put(t, m, "/p/00000000000000000002.log", data[:len(data)/2])
		l, report := mustOpen(t, m, Settings{}, Recovery{RecoveryPoint: 3, AllowGaps: allow})
		want := slices.Clone(batches[:3])
		if allow {
			want = append(want, batches[4])
		}
		checkBatches(t, collect(t, l, 0), want)
		if (report.Cut == nil) != allow || !allow && (report.Cut.Bytes != 0 || !errors.Is(report.Cut.Cause, ErrCorrupt)) {
			t.Errorf("%+v", report.Cut)
		}
	}
}

func TestLogStartAboveEnd(t *testing.T) {
	m := newMem(t)
	three(t, m)
	l, report := mustOpen(t, m, Settings{}, Recovery{LogStart: 9})
	if l.Start() != 9 || l.End() != 9 || l.RecoveryPoint() != 9 || !report.Reset || len(report.Removed) != 3 {
		t.Fatalf("[%d, %d), %+v", l.Start(), l.End(), report)
	}
	for _, r := range report.Removed {
		if err := r.Unlink(m); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(list(t, m)); got != "[00000000000000000009.log]" {
		t.Errorf("files %s", got)
	}
	mustAppend(t, l, makeBatch(t, 9, 1, 1000, 100))
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	m := newMem(t)
	three(t, m)
	others := []string{
		"00000000000000000002.snapshot", "00000000000000000002.txnindex", "0000000000000000002.log", "00000000000000000002.log.bak",
		"leader-epoch-checkpoint", "partition.metadata", "x.log", "99999999999999999999.log",
	}
	for _, name := range others {
		put(t, m, "/p/"+name, []byte(name))
	}
	gone := []string{"00000000000000000000.log.deleted", "00000000000000000000.snapshot.deleted", "00000000000000000000.txnindex.deleted",
		"00000000000000000007.index", "00000000000000000007.timeindex"}
	for _, name := range gone {
		put(t, m, "/p/"+name, []byte(name))
	}
	_, report := mustOpen(t, m, Settings{}, Recovery{Clean: true})
	slices.Sort(others)
	slices.Sort(report.Others)
	if !slices.Equal(report.Others, others) {
		t.Errorf("others %q", report.Others)
	}
	for _, name := range others {
		if string(get(t, m, "/p/"+name)) != name {
			t.Errorf("%s was changed", name)
		}
	}
	for _, name := range gone {
		if slices.Contains(list(t, m), name) {
			t.Errorf("%s is still there", name)
		}
	}
}

// A compaction that had finished its segment is completed; one that hadn't is forgotten.
func TestSwapAndCleaned(t *testing.T) {
	m := newMem(t)
	batches := three(t, m)
	compacted := slices.Concat(batches[1], batches[2]) // of the segments 0 and 2
	put(t, m, "/p/00000000000000000000.log.swap", compacted)
	put(t, m, "/p/00000000000000000000.index.swap", nil)
	put(t, m, "/p/00000000000000000000.timeindex.swap", nil)

	done := m.CrashClone(nil)
	l, report := mustOpen(t, done, Settings{}, Recovery{AllowGaps: true})
	checkBatches(t, collect(t, l, 0), []protocol.Batch{batches[1], batches[2], batches[4]})
	if got := bases(l); got != "[0 4]" || report.Cut != nil {
		t.Errorf("segments %s, %+v", got, report)
	}

	// KAFKA-6264: a .cleaned file at or below says that the round wasn't over.
	put(t, m, "/p/00000000000000000000.log.cleaned", compacted[:100])
	l, _ = mustOpen(t, m, Settings{}, Recovery{})
	checkBatches(t, collect(t, l, 0), batches)
	if got := len(list(t, m)); got != 9 {
		t.Errorf("files %v", list(t, m))
	}
	l.Abandon()

	// One above leaves the swap valid.
	three2 := newMem(t)
	batches = three(t, three2)
	put(t, three2, "/p/00000000000000000000.log.swap", compacted)
	put(t, three2, "/p/00000000000000000004.log.cleaned", compacted[:100])
	l, _ = mustOpen(t, three2, Settings{}, Recovery{AllowGaps: true})
	checkBatches(t, collect(t, l, 0), []protocol.Batch{batches[1], batches[2], batches[4]})
}

func TestOldMagicIsRefused(t *testing.T) {
	// magic 1: offset, size, crc, magic, attributes, timestamp, key, value
	old := make([]byte, 8+4+4+1+1+8+4+4)
	binary.BigEndian.PutUint32(old[8:], uint32(len(old)-12))
	old[16] = 1
	binary.BigEndian.PutUint32(old[26:], 0xffffffff)
	binary.BigEndian.PutUint32(old[12:], crc32.ChecksumIEEE(old[16:]))
	for _, r := range []Recovery{{}, {Clean: true}} {
		m := newMem(t)
		put(t, m, "/p/"+FileName(0, ExtLog), old)
		if r.Clean {
			put(t, m, "/p/"+FileName(0, ExtIndex), nil)
			put(t, m, "/p/"+FileName(0, ExtTimeIndex), nil)
		}
		if _, _, err := Open(m, "/p", Options{}, r, clock); !errors.Is(err, ErrUnsupportedMagic) {
			t.Errorf("%v", err)
		}
		if got := get(t, m, "/p/"+FileName(0, ExtLog)); string(got) != string(old) {
			t.Error("the file was changed")
		}
	}
	// The head of a batch on a page that was never written is no old message.
	m := newMem(t)
	torn := make([]byte, 200)
	copy(torn, makeBatch(t, 0, 1, 1000, 150)[:16])
	put(t, m, "/p/"+FileName(0, ExtLog), torn)
	if l, report := mustOpen(t, m, Settings{}, Recovery{}); l.End() != 0 || report.Cut == nil || report.Cut.Bytes != 200 {
		t.Errorf("end %d, %+v", l.End(), report)
	}
}

// An idle log costs little memory, and no open file.
func TestIdleLogIsSmall(t *testing.T) {
	m := newMem(t)
	three(t, m)
	var before, after runtime.MemStats
	const n = 500
	logs := make([]*Log, n)
	files := NewFiles(m, 8)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range logs {
		l, _, err := Open(m, "/p", Options{Files: files}, Recovery{Clean: true}, clock)
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = l
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if size := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; size > 4096 {
		t.Errorf("%d bytes a log of three segments", size)
	} else {
		t.Logf("%d bytes a log of three segments", size)
	}
	if files.Open() != 0 {
		t.Errorf("%d files open", files.Open())
	}
	for _, l := range logs {
		l.Abandon()
	}
}

func BenchmarkOpenClean(b *testing.B) {
	dir := b.TempDir()
	l, _, err := Open(vfs.OS, dir, Options{}, Recovery{}, clock)
	if err != nil {
		b.Fatal(err)
	}
	for range 100 {
		mustAppend(b, l, makeBatch(b, l.End(), 1, 1000, 1000))
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	files := NewFiles(vfs.OS, 100)
	b.ReportAllocs()
	for b.Loop() {
		l, _, err := Open(vfs.OS, dir, Options{Files: files}, Recovery{Clean: true}, clock)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	files := NewFiles(vfs.OS, 100)
	root, n := b.TempDir(), 0
	b.ReportAllocs()
	for b.Loop() {
		dir := filepath.Join(root, fmt.Sprint(n))
		n++
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if _, _, err := Open(vfs.OS, dir, Options{Files: files}, Recovery{}, clock); err != nil {
			b.Fatal(err)
		}
	}
}

// A last segment that is too small for an index gets no files at its recovery, and is appended to and closed as ever.
func TestSmallTailIsRecoveredInMemory(t *testing.T) {
	m := newMem(t)
	settings := Settings{IndexIntervalBytes: 4096}
	l, _ := mustOpen(t, m, settings, Recovery{})
	var batches []protocol.Batch
	add := func(bytes int) {
		b := makeBatch(t, l.End(), 1, 1000+l.End(), bytes)
		mustAppend(t, l, b)
		batches = append(batches, b)
	}
	for range 2 { // killed, and killed again
		add(200)
		m = m.CrashClone(nil)
		l, _ = mustOpen(t, m, settings, Recovery{})
		if got := fmt.Sprint(list(t, m)); got != "[00000000000000000000.log]" {
			t.Errorf("files %s", got)
		}
		checkBatches(t, collect(t, l, 0), batches)
		if found, ok, err := l.MaxTimestamp(); err != nil || !ok || found.Offset != l.End()-1 {
			t.Errorf("%+v, %v, %v", found, ok, err)
		}
	}
	add(6000)
	add(200)
	if n := l.active().offsets.entries(); n != 1 {
		t.Errorf("%d entries", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, report := mustOpen(t, m.CrashClone(nil), settings, Recovery{Clean: true})
	if len(report.Scanned) != 0 {
		t.Errorf("%+v", report)
	}
	checkBatches(t, collect(t, l, 0), batches)
}
