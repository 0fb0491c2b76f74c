package idempotence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"oncelog/controlmarkers"
	"oncelog/protocol"
)

// describe shows a table whole.
func (t *Table) describe() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(t.producers)) {
		p := t.producers[id]
		fmt.Fprintf(&b, "%d: epoch=%d", id, p.epoch)
		if p.coordinatorEpoch != none {
			fmt.Fprintf(&b, " coordinator=%d", p.coordinatorEpoch)
		}
		if p.txnFirst != none {
			fmt.Fprintf(&b, " open=%d", p.txnFirst)
		}
		for i := range int(p.count) {
			w := p.at(i)
			fmt.Fprintf(&b, " [%d..%d]@%d", w.firstSequence(), w.lastSequence, w.firstOffset())
		}
		b.WriteByte('\n')
	}
	for _, id := range slices.Sorted(maps.Keys(t.verifications)) {
		v := t.verifications[id]
		fmt.Fprintf(&b, "verifying %d: epoch=%d lowest=%d tv2=%v\n", id, v.epoch, v.lowestSequence, v.tv2)
	}
	if b.Len() == 0 {
		return "empty\n"
	}
	return b.String()
}

// script is a table with a log under it.
type script struct {
	table    *Table
	end, hw  int64
	hwBehind bool // the high watermark is moved by hand
	guards   map[string]Guard
	now      int64
}

func arg[T any](d *datadriven.TestData, name string, def T) T {
	if d.HasArg(name) {
		var v T
		switch p := any(&v).(type) {
		case *int64:
			d.ScanArgs(nilTB{}, name, p)
		case *int:
			d.ScanArgs(nilTB{}, name, p)
		case *string:
			d.ScanArgs(nilTB{}, name, p)
		}
		return v
	}
	return def
}

// nilTB stands for the test where an argument's type can't be wrong.
type nilTB struct{ testing.TB }

func (nilTB) Helper() {}

func (s *script) run(d *datadriven.TestData) string {
	s.now += arg(d, "after", int64(1))
	switch d.Cmd {
	case "append":
		return s.append(d)
	case "marker":
		return s.marker(d)
	case "verify":
		g, needed, err := s.table.Verify(arg(d, "pid", int64(1)), int16(arg(d, "epoch", int64(0))), int32(arg(d, "seq", int64(0))), d.HasArg("tv2"), s.now)
		if err != nil {
			return err.Error() + "\n"
		}
		s.guards[arg(d, "as", "g")] = g
		return fmt.Sprintf("needed: %v\n", needed)
	case "hw":
		s.hw, s.hwBehind = arg(d, "at", s.end), true
		return fmt.Sprintf("unstable: %d\n", s.table.FirstUnstable(s.hw))
	case "restart":
		snapshot := s.table.AppendSnapshot(nil)
		windows := s.table.AppendWindows(nil, snapshot)
		entries, err := ParseSnapshot(snapshot)
		if err != nil {
			return err.Error() + "\n"
		}
		w, err := ParseWindows(windows, snapshot)
		if err != nil {
			return err.Error() + "\n"
		}
		if d.HasArg("kafka") {
			w = nil
		}
		s.table.Restore(entries, w, s.now)
		return s.table.describe()
	case "expire":
		return fmt.Sprintf("expired: %d\n", s.table.Expire(s.now, arg(d, "ms", int64(1000))))
	case "state":
		return s.table.describe()
	}
	return "unknown command\n"
}

func (s *script) header(d *datadriven.TestData) protocol.BatchHeader {
	n := int32(arg(d, "n", int64(1)))
	h := protocol.BatchHeader{
		BaseOffset: s.end, LastOffsetDelta: n - 1, NumRecords: n,
		ProducerID: arg(d, "pid", int64(1)), ProducerEpoch: int16(arg(d, "epoch", int64(0))),
		BaseSequence: int32(arg(d, "seq", int64(0))), MaxTimestamp: arg(d, "ts", s.now),
	}
	if d.HasArg("txn") {
		h.Attributes |= 1 << 4
	}
	return h
}

func (s *script) append(d *datadriven.TestData) string {
	h := s.header(d)
	c := Check{Guard: s.guards[arg(d, "guard", "none")], Unverified: d.HasArg("unverified")}
	if d.HasArg("coordinator") {
		c.Origin = Coordinator
	}
	before := s.table.describe()
	v, err := s.table.Check(&h, c)
	if after := s.table.describe(); after != before {
		return "Check changed the table\n"
	}
	switch {
	case err != nil:
		return code(err)
	case v.Duplicate:
		return fmt.Sprintf("duplicate of %d..%d\n", v.First, v.Last)
	}
	s.table.Apply(&h, s.now)
	s.end += int64(h.LastOffsetDelta) + 1
	return fmt.Sprintf("at %d, unstable: %d\n", h.BaseOffset, s.unstable())
}

func (s *script) unstable() int64 {
	if !s.hwBehind {
		s.hw = s.end
	}
	return s.table.FirstUnstable(s.hw)
}

func (s *script) marker(d *datadriven.TestData) string {
	h := s.header(d)
	h.BaseSequence = -1
	m := controlmarkers.Marker{Commit: !d.HasArg("abort"), CoordinatorEpoch: int32(arg(d, "ce", int64(0)))}
	if err := s.table.CheckMarker(h.ProducerID, h.ProducerEpoch, m.CoordinatorEpoch, int16(arg(d, "tv", int64(0)))); err != nil {
		return code(err)
	}
	e, ok := s.table.ApplyMarker(&h, m, s.now)
	s.end++
	ended := "nothing was open"
	if ok {
		ended = fmt.Sprintf("ended %d..%d stable %d", e.First, e.Last, e.LastStable)
	}
	return fmt.Sprintf("at %d, %s, unstable: %d\n", h.BaseOffset, ended, s.unstable())
}

// code is the protocol's code of an error.
func code(err error) string {
	for sentinel, code := range map[error]int{ErrSequence: 45, ErrEpoch: 47, ErrTransaction: 48, ErrCoordinatorEpoch: 52} {
		if errors.Is(err, sentinel) {
			return fmt.Sprintf("%d\n", code)
		}
	}
	return err.Error() + "\n"
}

// TestScripts runs the scenarios in testdata. Each begins with an empty table.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{table: New(), guards: map[string]Guard{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "begin" {
				*s = script{table: New(), guards: map[string]Guard{}}
				return ""
			}
			return s.run(d)
		})
	})
}

func TestSequenceArithmetic(t *testing.T) {
	const top = math.MaxInt32
	for _, tt := range []struct{ s, d, want int32 }{{0, 1, top}, {2, 5, top - 2}, {5, 2, 3}, {top, top, 0}, {0, 0, 0}} {
		if got := back(tt.s, tt.d); got != tt.want {
			t.Errorf("%d records before %d: %d, want %d", tt.d, tt.s, got, tt.want)
		}
		if again := protocol.AddSequence(back(tt.s, tt.d), tt.d); again != tt.s {
			t.Errorf("and forth: %d", again)
		}
	}
	if !follows(top, 0) || follows(top, 1) || !follows(-1, 0) || follows(4, 6) || !follows(4, 5) {
		t.Error("order of sequences is wrong")
	}
}

// TestSnapshotIsKafkasBytes has the vector of Kafka's format.
func TestSnapshotIsKafkasBytes(t *testing.T) {
	const want = "0001613829f4000000010000000000000007000300000029" + "00000000000003e8000000090000018bcfe5680000000005ffffffffffffffff"
	table := New()
	table.Restore([]Entry{{7, 3, 41, 1000, 9, 1700000000000, 5, -1}}, nil, 0)
	if got := hex.EncodeToString(table.AppendSnapshot(nil)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if got := hex.EncodeToString(New().AppendSnapshot(nil)); got != "000148674bc700000000" {
		t.Fatalf("empty: %s", got)
	}
}

// random makes one random step: a batch that the table takes, or a marker.
func random(r *rand.Rand, t *Table, end *int64) {
	id := r.Int64N(3)
	h := protocol.BatchHeader{BaseOffset: *end, ProducerID: id, LastOffsetDelta: r.Int32N(3), MaxTimestamp: r.Int64N(1000)}
	p := t.producers[id]
	if p != nil {
		h.ProducerEpoch = p.epoch
		h.BaseSequence = protocol.AddSequence(max(p.lastSequence(), 0), 1)
		if p.count == 0 {
			h.BaseSequence = 0
		}
	}
	if r.IntN(10) == 0 {
		h.ProducerEpoch, h.BaseSequence = h.ProducerEpoch+1, 0
	}
	if r.IntN(4) == 0 {
		h.LastOffsetDelta = 0
		t.ApplyMarker(&h, controlmarkers.Marker{Commit: r.IntN(2) == 0, CoordinatorEpoch: r.Int32N(5)}, *end)
	} else {
		if r.IntN(2) == 0 || p != nil && p.txnFirst != none {
			h.Attributes |= 1 << 4
		}
		t.Apply(&h, *end)
	}
	*end += int64(h.LastOffsetDelta) + 1
}

// TestRestoreIsTheTable: a table saved at any moment and restored goes on as the one that was not.
func TestRestoreIsTheTable(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		table, end := New(), int64(0)
		for range r.IntN(200) {
			random(r, table, &end)
		}
		snapshot := table.AppendSnapshot(nil)
		entries, err := ParseSnapshot(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		windows, err := ParseWindows(table.AppendWindows(nil, snapshot), snapshot)
		if err != nil {
			t.Fatal(err)
		}
		restored := New()
		restored.Restore(entries, windows, math.MaxInt64)
		if got, want := restored.describe(), table.describe(); got != want {
			t.Fatalf("seed %d: restored\n%swant\n%s", seed, got, want)
		}
		table.FirstUnstable(end)
		if got, want := restored.FirstUnstable(end), table.FirstUnstable(end); got != want {
			t.Fatalf("seed %d: unstable %d, want %d", seed, got, want)
		}
		for id, p := range table.producers {
			if restored.producers[id].appended != p.appended {
				t.Fatalf("seed %d: producer %d appended at %d, want %d", seed, id, restored.producers[id].appended, p.appended)
			}
		}
	}
}

// TestFirstUnstableAgainstScan compares with a look at everything.
func TestFirstUnstableAgainstScan(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	type span struct{ first, last int64 }
	for range 50 {
		table, end, hw := New(), int64(0), int64(0)
		var ended []span
		for range 100 {
			before := map[int64]int64{}
			for id, p := range table.producers {
				before[id] = p.txnFirst
			}
			at := end
			random(r, table, &end)
			for id, first := range before {
				if first != none && table.producers[id].txnFirst == none {
					ended = append(ended, span{first, at})
				}
			}
			hw += r.Int64N(end - hw + 1)
			want := int64(none)
			note := func(first int64) {
				if want == none || first < want {
					want = first
				}
			}
			for _, p := range table.producers {
				if p.txnFirst != none {
					note(p.txnFirst)
				}
			}
			for _, s := range ended {
				if s.last >= hw {
					note(s.first)
				}
			}
			if got := table.FirstUnstable(hw); got != want {
				t.Fatalf("high watermark %d: %d, want %d\n%s", hw, got, want, table.describe())
			}
		}
	}
}

// TestWindowsOfAnotherSnapshot: Kafka has written the snapshot of this offset anew, so our windows mean nothing.
func TestWindowsOfAnotherSnapshot(t *testing.T) {
	table := New()
	h := protocol.BatchHeader{ProducerID: 1}
	table.Apply(&h, 5)
	windows := table.AppendWindows(nil, table.AppendSnapshot(nil))
	if w, err := ParseWindows(windows, New().AppendSnapshot(nil)); w != nil || err != nil {
		t.Fatal(w, err)
	}
}

// TestAppendDoesNotAllocate is the budget of a producer's next batch.
func TestAppendDoesNotAllocate(t *testing.T) {
	table := New()
	h := protocol.BatchHeader{ProducerID: 1, LastOffsetDelta: 9}
	next := func() {
		if v, err := table.Check(&h, Check{}); err != nil || v.Duplicate {
			t.Fatal(v, err)
		}
		table.Apply(&h, 1)
		table.FirstUnstable(h.BaseOffset)
		h.BaseOffset += 10
		h.BaseSequence += 10
	}
	next()
	if n := testing.AllocsPerRun(100, next); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	table := New()
	h := protocol.BatchHeader{ProducerID: 1, LastOffsetDelta: 9}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := table.Check(&h, Check{}); err != nil {
			b.Fatal(err)
		}
		table.Apply(&h, 1)
		h.BaseOffset += 10
		h.BaseSequence = protocol.AddSequence(h.BaseSequence, 10)
	}
}

func BenchmarkTransactions(b *testing.B) {
	table := New()
	for id := range int64(1000) { // that stay open
		table.Apply(&protocol.BatchHeader{BaseOffset: id, ProducerID: -id - 2, Attributes: 1 << 4}, 1)
	}
	data := protocol.BatchHeader{ProducerID: 1, Attributes: 1 << 4, BaseOffset: 5000}
	end := protocol.BatchHeader{ProducerID: 1, BaseOffset: 5001}
	b.ReportAllocs()
	for b.Loop() {
		table.Apply(&data, 1)
		table.ApplyMarker(&end, controlmarkers.Marker{Commit: true}, 1)
		table.FirstUnstable(end.BaseOffset + 1)
		data.BaseOffset, end.BaseOffset = data.BaseOffset+2, end.BaseOffset+2
	}
}

// BenchmarkSnapshot writes and reads the snapshot of many producers, with their windows.
func BenchmarkSnapshot(b *testing.B) {
	for _, producers := range []int64{1, 1000, 100_000} {
		table := New()
		for batch := range int64(5) {
			for id := range producers {
				h := protocol.BatchHeader{ProducerID: id, BaseOffset: batch*producers + id, BaseSequence: int32(batch)}
				table.Apply(&h, 1)
			}
		}
		snapshot := table.AppendSnapshot(nil)
		windows := table.AppendWindows(nil, snapshot)
		b.Run(fmt.Sprintf("write/producers=%d", producers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(snapshot) + len(windows)))
			var s, w []byte
			for b.Loop() {
				s = table.AppendSnapshot(s[:0])
				w = table.AppendWindows(w[:0], s)
			}
		})
		b.Run(fmt.Sprintf("read/producers=%d", producers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(snapshot) + len(windows)))
			for b.Loop() {
				entries, err := ParseSnapshot(snapshot)
				if err != nil {
					b.Fatal(err)
				}
				w, err := ParseWindows(windows, snapshot)
				if err != nil {
					b.Fatal(err)
				}
				New().Restore(entries, w, 1)
			}
		})
	}
}

func FuzzParseSnapshot(f *testing.F) {
	table := New()
	table.Apply(&protocol.BatchHeader{ProducerID: 1, Attributes: 1 << 4, LastOffsetDelta: 3}, 5)
	snapshot := table.AppendSnapshot(nil)
	f.Add(snapshot, table.AppendWindows(nil, snapshot))
	f.Add(New().AppendSnapshot(nil), []byte{})
	f.Fuzz(func(t *testing.T, snapshot, windows []byte) {
		// The fuzzer can't guess checksums.
		for _, file := range [][]byte{snapshot, windows} {
			if len(file) > 6 {
				seal(file)
			}
		}
		entries, err := ParseSnapshot(snapshot)
		if err != nil {
			return
		}
		if len(windows) >= windowHeader {
			copy(windows[6:], snapshot[2:6])
			seal(windows)
		}
		w, _ := ParseWindows(windows, snapshot)
		restored := New()
		restored.Restore(entries, w, 1)
		restored.FirstUnstable(1)
		again, err := ParseSnapshot(restored.AppendSnapshot(nil))
		if err != nil && w == nil {
			t.Fatal(err)
		}
		if err == nil && len(again) != len(restored.producers) {
			t.Fatal(len(again), len(restored.producers))
		}
	})
}
