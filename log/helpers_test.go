package log

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

var clock = time.UnixMilli(1_700_000_000_000)

// eachSeed runs a test of one goroutine with some seeds, several at once. The race detector has nothing to find in it, and gets few.
func eachSeed(t *testing.T, seeds int, test func(t *testing.T, seed int)) {
	t.Helper()
	if raceEnabled || testing.Short() {
		seeds = max(1, seeds/8)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			test(t, seed)
		})
	}
}

// unsynced is the operating system's file system without fsyncs, for tests that crash nothing.
type unsynced struct{ vfs.FS }

func (u unsynced) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	return unsyncedFile{f}, err
}

func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 7)) }

// makeBatch builds a batch of n records with timestamps ts, ts+1, …; ts -1 gives none. Size is about bytes.
func makeBatch(t testing.TB, base int64, n int, ts int64, bytes int) protocol.Batch {
	t.Helper()
	records := make([]protocol.Record, n)
	for i := range records {
		records[i] = protocol.Record{TimestampDelta: int64(i), Value: make([]byte, max(1, (bytes-61)/n-8))}
		for k := range records[i].Value {
			records[i].Value[k] = byte(base) + byte(k)
		}
		if ts < 0 {
			records[i].TimestampDelta = 0
		}
	}
	b, err := protocol.AppendBatch(nil, protocol.BatchSpec{BaseOffset: base, LeaderEpoch: 3, BaseTimestamp: ts,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, records)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newMem is a file system with a durable directory /p.
func newMem(t testing.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	m.SetClock(func() time.Time { return clock })
	if err := m.MkdirAll("/p", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return m
}

func mustOpen(t testing.TB, fsys vfs.FS, s Settings, r Recovery) (*Log, Report) {
	t.Helper()
	l, report, err := Open(fsys, "/p", Options{Settings: s}, r, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Abandon)
	return l, report
}

func mustAppend(t testing.TB, l *Log, b protocol.Batch) Appended {
	t.Helper()
	a, err := l.Append(b, clock)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fill appends count batches of random sizes and returns them.
func fill(t testing.TB, l *Log, rng *rand.Rand, count, maxBytes int) []protocol.Batch {
	t.Helper()
	var list []protocol.Batch
	for range count {
		b := makeBatch(t, l.End(), 1+rng.IntN(5), clock.UnixMilli()+rng.Int64N(10_000), 70+rng.IntN(maxBytes))
		mustAppend(t, l, b)
		list = append(list, b)
	}
	return list
}

// collect reads all batches from an offset on.
func collect(t testing.TB, l *Log, from int64) []protocol.Batch {
	t.Helper()
	var list []protocol.Batch
	for b, err := range l.Batches(from) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, slices.Clone(b))
	}
	return list
}

func checkBatches(t testing.TB, got, want []protocol.Batch) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d batches, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("batch %d: %+v, want %+v", i, got[i].Header(), want[i].Header())
		}
	}
}

// load copies a directory of the operating system into /p.
func load(t testing.TB, m *vfs.Mem, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !ownFile(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		put(t, m, "/p/"+e.Name(), data)
	}
}

func put(t testing.TB, m vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, m vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(m, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func list(t testing.TB, m vfs.FS) []string {
	t.Helper()
	entries, err := m.ReadDir("/p")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// checkFiles compares the files of /p, but for those to be deleted, with a directory of the operating system.
func checkFiles(t testing.TB, m vfs.FS, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range entries {
		if ownFile(e.Name()) {
			want = append(want, e.Name())
		}
	}
	got := slices.DeleteFunc(list(t, m), func(n string) bool { return strings.HasSuffix(n, SuffixDeleted) })
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("files %v, want %v", got, want)
	}
	for _, name := range want {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, m, "/p/"+name); !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes %x, want %d bytes %x", name, len(got), head(got), len(data), head(data))
		}
	}
}

// ownFile tells the files of a partition directory that are log's own.
func ownFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ExtLog || ext == ExtIndex || ext == ExtTimeIndex
}

func head(b []byte) []byte { return b[:min(len(b), 96)] }
