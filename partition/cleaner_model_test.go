package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"oncelog/controlmarkers"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// written is one record as it was produced.
type written struct {
	key, value string
	tombstone  bool
	aborted    bool
	open       bool // its transaction has not ended
}

// cleanerModel drives a compacted partition at random and knows every record.
type cleanerModel struct {
	t    *testing.T
	rng  *rand.Rand
	n    *node
	p    *Partition
	now  time.Time
	disk *vfs.Mem

	records map[int64]written // by offset
	epochs  map[int64]int16   // of producers, by id
	next    map[int64]int32   // sequences
	last    map[int64]spec    // what each producer sent last, if no marker followed
	txn     map[int64][]int64 // offsets of open transactions
	// superseded is when each offset's key was first cleaned with it as the last: a tombstone stays readable for delete.retention.ms from there.
	cleaned map[int64]time.Time
}

const (
	modelRetention = 10_000 // delete.retention.ms
	modelProducers = 3      // idempotent ones from 1, transactional ones from 101
)

func newCleanerModel(t *testing.T, seed uint64) *cleanerModel {
	m := &cleanerModel{t: t, rng: rand.New(rand.NewPCG(seed, 3)), now: start, disk: vfs.NewMem(), records: map[int64]written{}, epochs: map[int64]int16{},
		next: map[int64]int32{}, last: map[int64]spec{}, txn: map[int64][]int64{}, cleaned: map[int64]time.Time{}}
	m.n = open(t, m.disk, topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "900", "index.interval.bytes", "200",
		"min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", fmt.Sprint(modelRetention)))
	m.p = m.n.lead()
	return m
}

func (m *cleanerModel) step() {
	switch k := m.rng.IntN(20); {
	case k < 6:
		m.produce(0)
	case k < 10:
		m.produce(1 + m.rng.Int64N(modelProducers))
	case k < 15:
		m.produce(101 + m.rng.Int64N(modelProducers))
	case k < 18:
		m.endTxn(101 + m.rng.Int64N(modelProducers))
	default:
		m.now = m.now.Add(time.Duration(m.rng.Int64N(modelRetention)) * time.Millisecond)
	}
}

func (m *cleanerModel) produce(pid int64) {
	s := spec{pid: pid, epoch: m.epochs[pid], seq: m.next[pid], txn: pid > 100, codec: protocol.Codec(m.rng.IntN(5) * m.rng.IntN(2))}
	base := protocol.BatchSpec{Codec: s.codec, BaseTimestamp: m.now.UnixMilli(), MaxTimestamp: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Transactional: s.txn}
	if pid > 0 {
		base.ProducerID, base.ProducerEpoch, base.BaseSequence = pid, s.epoch, s.seq
	}
	var records []protocol.Record
	var list []written
	for range 1 + m.rng.IntN(4) {
		w := written{key: fmt.Sprintf("key %d", m.rng.IntN(12)), value: fmt.Sprintf("%d %0*d", m.rng.Uint32(), m.rng.IntN(80), 0), open: s.txn}
		r := protocol.Record{TimestampDelta: m.rng.Int64N(10), Key: []byte(w.key), Value: []byte(w.value)}
		if m.rng.IntN(6) == 0 {
			w.tombstone, w.value, r.Value = true, "", nil
		}
		records, list = append(records, r), append(list, w)
	}
	b, err := protocol.AppendBatch(nil, base, records)
	if err != nil {
		m.t.Fatal(err)
	}
	r := AppendRequest{Batch: b, Acks: -1, ExpectEpoch: -1, Now: m.now}
	if s.txn {
		if r.Guard, _, err = m.p.Verify(pid, s.epoch, s.seq, true, m.now); err != nil {
			m.t.Fatal(err)
		}
	}
	a, err := m.p.Append(r)
	if err != nil {
		m.t.Fatalf("producer %d: %v", pid, err)
	}
	for i, w := range list {
		m.records[a.BaseOffset+int64(i)] = w
		if s.txn {
			m.txn[pid] = append(m.txn[pid], a.BaseOffset+int64(i))
		}
	}
	if pid > 0 {
		s.n = len(list)
		m.next[pid] += int32(len(list))
		m.last[pid] = s
	}
}

func (m *cleanerModel) endTxn(pid int64) {
	if len(m.txn[pid]) == 0 {
		return
	}
	commit := m.rng.IntN(2) == 0
	m.epochs[pid]++
	_, err := m.p.WriteMarker(MarkerRequest{ProducerID: pid, Epoch: m.epochs[pid], Commit: commit, TransactionVersion: 2, ExpectEpoch: -1, Now: m.now})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, offset := range m.txn[pid] {
		w := m.records[offset]
		w.open, w.aborted = false, !commit
		m.records[offset] = w
	}
	delete(m.txn, pid)
	delete(m.last, pid)
	m.next[pid] = 0
}

// clean cleans, with a map that is often too small, and checks what readers see.
func (m *cleanerModel) clean() {
	d, _, err := m.p.inspectDirty(m.now)
	if err != nil {
		m.t.Fatal(err)
	}
	if !d.wanted(m.p.cfg.Load()) {
		return
	}
	c := m.n.shared.cleaner
	if err := c.mark(m.p, d); err != nil {
		m.t.Fatal(err)
	}
	run := c.newCleaning(context.Background(), m.p, d, m.now.UnixMilli())
	if m.rng.IntN(3) == 0 {
		run.keys.limit = 1 + m.rng.IntN(8)
	}
	end, err := run.run()
	if err != nil {
		m.t.Fatal(err)
	}
	if end <= d.from {
		m.t.Fatalf("no progress from %d", d.from)
	}
	m.p.compaction.mu.Lock()
	m.p.compaction.mu.cleaned = end
	m.p.compaction.mu.Unlock()
	for offset := range m.records {
		if _, ok := m.cleaned[offset]; !ok && offset < d.to {
			m.cleaned[offset] = m.now
		}
	}
}

// seen is one record that a consumer got.
type seen struct {
	offset int64
	key    string
	value  string
	null   bool
}

// consume reads from the log start as a consumer does, and gives the position that it comes to.
func consume(t *testing.T, p *Partition, i Isolation) (list []seen, position int64) {
	t.Helper()
	for position = p.Offsets().Start; ; {
		batches, res, err := read(t, p, ReadRequest{Offset: position, Isolation: i, CurrentLeaderEpoch: -1, MinOne: true, MaxBytes: 500})
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return list, position
		}
		dropping := map[int64]bool{}
		waiting := slices.Clone(res.Aborted)
		for _, b := range batches {
			h := b.Header()
			waiting = slices.DeleteFunc(waiting, func(a AbortedTxn) bool {
				if a.FirstOffset > h.LastOffset() {
					return false
				}
				dropping[a.ProducerID] = true
				return true
			})
			if h.Control() {
				if m, ok, err := controlmarkers.Decode(b); err != nil {
					t.Fatal(err)
				} else if ok && !m.Commit {
					delete(dropping, h.ProducerID)
				}
			} else if !h.Transactional() || !dropping[h.ProducerID] {
				list = appendSeen(t, list, b, &h, position)
			}
			position = h.LastOffset() + 1
		}
	}
}

func appendSeen(t *testing.T, list []seen, b protocol.Batch, h *protocol.BatchHeader, from int64) []seen {
	t.Helper()
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	r := b.Records(1 << 20)
	defer r.Close()
	for r.Next() {
		rec := r.Record()
		if offset := h.BaseOffset + int64(rec.OffsetDelta); offset >= from {
			list = append(list, seen{offset, string(rec.Key), string(rec.Value), rec.Value == nil})
		}
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return list
}

// check compares what consumers see with what was written.
func (m *cleanerModel) check(what string) {
	m.t.Helper()
	o := m.p.Offsets()
	stable := o.HW
	for _, offsets := range m.txn {
		stable = min(stable, offsets[0])
	}
	if o.LSO > stable || len(m.txn) == 0 && o.LSO != o.HW {
		m.t.Fatalf("%s: last stable offset %d, want %d; %+v", what, o.LSO, stable, o)
	}
	for _, i := range []Isolation{ReadCommitted, ReadUncommitted} {
		list, position := consume(m.t, m.p, i)
		bound := o.bound(i)
		// Below an open transaction the last batches may have gone: the reader comes further when it has ended.
		if position != bound && (bound == o.HW || m.p.Readable(position, i) > 0) {
			m.t.Fatalf("%s: isolation %d came to %d of %d", what, i, position, bound)
		}
		got, next := map[string]seen{}, int64(0)
		for _, s := range list {
			w, ok := m.records[s.offset]
			if !ok || w.key != s.key || w.value != s.value || w.tombstone != s.null || s.offset < next {
				m.t.Fatalf("%s: %+v, written was %+v (%v)", what, s, w, ok)
			}
			if i == ReadCommitted && (w.aborted || w.open) {
				m.t.Fatalf("%s: %+v was not committed: %+v", what, s, w)
			}
			if next = s.offset + 1; !w.aborted && !w.open {
				got[s.key] = s
			}
		}
		m.checkLast(what, got, bound)
	}
}

// checkLast compares the last committed value of each key.
func (m *cleanerModel) checkLast(what string, got map[string]seen, bound int64) {
	m.t.Helper()
	want := map[string]int64{}
	for offset := range bound {
		if w, ok := m.records[offset]; ok && !w.aborted && !w.open {
			want[w.key] = offset
		}
	}
	for key, offset := range want {
		w := m.records[offset]
		if s, ok := got[key]; ok && s.offset == offset {
			continue
		} else if !w.tombstone || ok {
			m.t.Fatalf("%s: %s is %+v (%v), want %+v at %d", what, key, s, ok, w, offset)
		}
		if at, ok := m.cleaned[offset]; !ok || m.now.Sub(at) < modelRetention*time.Millisecond {
			m.t.Fatalf("%s: the tombstone of %s at %d went too early", what, key, offset)
		}
	}
}

// restart begins anew after a clean stop, a kill or a loss of power that loses nothing, sometimes without the newest snapshots.
func (m *cleanerModel) restart() {
	m.t.Helper()
	if m.rng.IntN(3) == 0 {
		m.n.close()
	} else {
		m.n.Abandon()
		m.disk = m.disk.CrashClone(nil)
		for range m.rng.IntN(3) {
			if n := len(m.p.mu.snapshots); n > 0 {
				_ = m.disk.Remove(m.p.path(m.p.mu.snapshots[n-1], extSnapshot))
				m.p.mu.snapshots = m.p.mu.snapshots[:n-1]
			}
		}
	}
	m.n = open(m.t, m.disk, m.n.topic)
	m.p = m.n.lead()
}

// checkProducers sends what each producer sent last again.
func (m *cleanerModel) checkProducers(what string) {
	m.t.Helper()
	end := m.p.Offsets().End
	for pid, s := range m.last {
		a, err := m.p.Append(s.request(m.t))
		if err != nil || !a.Duplicate {
			m.t.Fatalf("%s: producer %d's last batch %+v again: %+v, %v", what, pid, s, a, err)
		}
	}
	if got := m.p.Offsets().End; got != end {
		m.t.Fatalf("%s: end %d, was %d", what, got, end)
	}
}

// TestCleaningKeepsWhatCounts: whatever is written and cleaned, readers find the last committed value of each key, at its offset; tombstones for long
// enough; nothing that was aborted; and each producer goes on where it was, after any restart.
func TestCleaningKeepsWhatCounts(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	removed := int64(0)
	for seed := range seeds {
		m := newCleanerModel(t, seed)
		for round := range 12 {
			for range 10 + m.rng.IntN(20) {
				m.step()
			}
			before := m.p.Size()
			m.clean()
			removed += before - m.p.Size()
			what := fmt.Sprintf("seed %d, round %d", seed, round)
			m.check(what)
			if m.rng.IntN(3) == 0 {
				m.restart()
				m.check(what + ", restarted")
				m.checkProducers(what)
			}
			for _, name := range names(t, m.disk, "/data/t-0") {
				if _, ext, ok := log.ParseFileName(name); ok && (ext == ".log.cleaned" || ext == ".log.swap") {
					t.Fatalf("%s: %s is left", what, name)
				}
			}
		}
		m.n.close()
	}
	t.Logf("%d bytes were removed", removed)
}
