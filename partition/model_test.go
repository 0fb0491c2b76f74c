package partition

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// model is what a partition has to be: all batches that were acknowledged, in order.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	n       *node
	p       *Partition
	batches []protocol.Batch
	seq     map[int64]int32 // next sequence of each producer
	open    map[int64]bool  // producers with an open transaction
}

func newModel(t *testing.T, seed uint64, n *node) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 11)), seq: map[int64]int32{}, open: map[int64]bool{}}
	m.on(n)
	return m
}

// on goes on with a node that was opened anew.
func (m *model) on(n *node) { m.n, m.p = n, n.lead() }

// step appends something.
func (m *model) step() {
	m.t.Helper()
	id := int64(1 + m.rng.IntN(5))
	if m.open[id] && m.rng.IntN(3) == 0 {
		last := endTxn(m.t, m.p, id, 0, m.rng.IntN(2) == 0)
		m.open[id] = false
		m.note(last)
		return
	}
	s := spec{pid: id, seq: m.seq[id], n: 1 + m.rng.IntN(3), txn: m.open[id]}
	switch {
	case m.rng.IntN(5) == 0:
		s.pid = 0
	case id > 2:
		s.txn = true
	}
	if s.pid == 0 {
		s.txn = false
	}
	a := mustProduce(m.t, m.p, s)
	if s.pid != 0 {
		m.seq[id] += int32(s.n)
		m.open[id] = s.txn
	}
	m.note(a.BaseOffset)
}

// note keeps the batch that was stored at an offset.
func (m *model) note(offset int64) {
	m.t.Helper()
	m.batches = append(m.batches, slices.Clone(stored(m.t, m.p, offset)))
}

// fold gives the producers' state and the aborted transactions that follow from the model's batches.
func (m *model) fold() (*idempotence.Table, controlmarkers.Index) {
	m.t.Helper()
	table, index := idempotence.New(), controlmarkers.Index{}
	for _, b := range m.batches {
		h := b.Header()
		err := replayBatch(table, b, &h, start.UnixMilli(), func(e idempotence.Ended) (err error) {
			if !e.Commit {
				index, err = index.Add(e.Aborted)
			}
			return err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return table, index
}

func (m *model) end() int64 {
	if len(m.batches) == 0 {
		return 0
	}
	return m.batches[len(m.batches)-1].Header().LastOffset() + 1
}

// check compares a partition with the model.
func (m *model) check(p *Partition) {
	m.t.Helper()
	end, i := p.Offsets().End, 0
	for b, err := range p.Batches(p.Offsets().Start) {
		if err != nil {
			m.t.Fatal(err)
		}
		for i < len(m.batches) && m.batches[i].Header().LastOffset() < b.Header().BaseOffset {
			i++
		}
		if i == len(m.batches) || !bytes.Equal(b, m.batches[i]) {
			m.t.Fatalf("batch at %d differs", b.Header().BaseOffset)
		}
	}
	if end != m.end() {
		m.t.Fatalf("log ends at %d, want %d", end, m.end())
	}
	table, index := m.fold()
	if o := p.Offsets(); o.LSO != controlmarkers.LastStable(table.FirstUnstable(o.HW), o.HW) {
		m.t.Fatalf("last stable offset %d of %+v, unstable %d", o.LSO, o, table.FirstUnstable(o.HW))
	}
	p.mu.Lock()
	got, want := dump(p.mu.table), dump(table)
	p.mu.Unlock()
	if got != want {
		m.t.Fatalf("producers\n%s\nwant\n%s\n%s", got, want, m.n.logs)
	}
	m.checkReads(p, index)
}

// dump shows everything of a table.
func dump(t *idempotence.Table) string {
	snapshot := t.AppendSnapshot(nil)
	entries, _ := idempotence.ParseSnapshot(snapshot)
	windows, _ := idempotence.ParseWindows(t.AppendWindows(nil, snapshot), snapshot)
	var b strings.Builder
	for i, e := range entries {
		fmt.Fprintf(&b, "%+v %+v\n", e, windows[i])
	}
	return b.String()
}

// checkReads compares what read_committed fetches tell with a look at every aborted transaction: each that meets the range is told,
// and none that ended before it.
func (m *model) checkReads(p *Partition, index controlmarkers.Index) {
	m.t.Helper()
	o := p.Offsets()
	for from := o.Start; from < o.LSO; from++ {
		batches, res, err := read(m.t, p, ReadRequest{Offset: from, Isolation: ReadCommitted, CurrentLeaderEpoch: -1, MaxBytes: 1 + m.rng.IntN(600), MinOne: true})
		if err != nil || len(batches) == 0 {
			m.t.Fatal(from, err)
		}
		to := batches[len(batches)-1].Header().LastOffset() + 1
		if to > o.LSO {
			m.t.Fatalf("read up to %d, last stable offset %d", to, o.LSO)
		}
		for _, a := range index {
			told := slices.Contains(res.Aborted, AbortedTxn{a.ProducerID, a.First})
			if meets := a.Last >= from && a.First < to; meets && !told {
				m.t.Fatalf("[%d, %d): aborted %+v is not told: %v", from, to, a, res.Aborted)
			}
			if told && a.Last < from {
				m.t.Fatalf("[%d, %d): aborted %+v is told", from, to, a)
			}
		}
	}
}

// small makes segments of a few batches.
func small(t *testing.T) []string {
	return []string{"internal.segment.bytes", "700", "index.interval.bytes", "200", "retention.ms", "-1"}
}

// TestStateIsTheFoldOfTheLog: after any history, and after a stop or a kill, the state is that of a replay of all batches; the
// windows of the producers are whole.
func TestStateIsTheFoldOfTheLog(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk := vfs.NewMem()
			m := newModel(t, seed, open(t, disk, topicConfig(t, small(t)...)))
			for range 6 {
				for range m.rng.IntN(30) {
					m.step()
				}
				if m.rng.IntN(2) == 0 {
					if err := m.p.Sync(); err != nil {
						t.Fatal(err)
					}
					if err := m.n.checkpointPoints(); err != nil {
						t.Fatal(err)
					}
				}
				m.check(m.p)
				if m.rng.IntN(2) == 0 {
					m.n.close()
				} else {
					disk = disk.CrashClone(nil)
					m.n.Abandon()
				}
				m.on(open(t, disk, m.n.topic))
				m.check(m.p)
			}
		})
	}
}

// TestTrim: whatever is removed from the front, the offsets keep their order and what can be read is right.
func TestTrim(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk := vfs.NewMem()
			m := newModel(t, seed, open(t, disk, topicConfig(t, append(small(t), "file.delete.delay.ms", "0")...)))
			for range 8 {
				for range m.rng.IntN(20) {
					m.step()
				}
				o := m.p.Offsets()
				if _, err := m.p.DeleteRecords(o.Start + m.rng.Int64N(o.HW-o.Start+1)); err != nil {
					t.Fatal(err)
				}
				if m.rng.IntN(2) == 0 {
					if err := m.p.retain(start); err != nil {
						t.Fatal(err)
					}
				}
				m.checkTrimmed()
				m.n.close()
				m.on(open(t, disk, m.n.topic))
				m.checkTrimmed()
			}
		})
	}
}

func (m *model) checkTrimmed() {
	m.t.Helper()
	o := m.p.Offsets()
	table, index := m.fold()
	first := table.FirstUnstable(o.HW)
	base := o.Start
	for _, b := range m.batches {
		if h := b.Header(); h.BaseOffset <= o.Start && o.Start <= h.LastOffset() {
			base = h.BaseOffset
		}
	}
	want := o.HW
	if first >= 0 {
		if want = max(first, base); first >= o.Start {
			want = first
		}
	}
	if o.LSO != want || o.LSO > o.HW || o.HW > o.End || o.Start > o.HW || o.End != m.end() {
		m.t.Fatalf("%+v, want last stable offset %d, first unstable %d", o, want, first)
	}
	m.checkReads(m.p, index)
	if got := m.p.epochs.Load().at(o.Start); got < 0 {
		m.t.Fatalf("no epoch at the start %d: %v", o.Start, *m.p.epochs.Load())
	}
}

// TestPowerFailure takes the disk as a loss of power could leave it, at a random operation of the file system, and opens it: what
// was synced is there, what is there is a prefix of what was appended, and the state is the fold of it.
func TestPowerFailure(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk := vfs.NewMem()
			rng := rand.New(rand.NewPCG(seed, 5))
			var mu sync.Mutex // the set's goroutine syncs in between
			countdown := 1 + rng.IntN(250)
			var crashed *vfs.Mem
			var p atomic.Pointer[Partition]
			synced := int64(0)
			fsys := vfs.Inject(disk, func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if !op.Kind.Changes() || crashed != nil {
					return nil
				}
				if countdown--; countdown == 0 {
					if p := p.Load(); p != nil {
						synced = p.log.Durable()
					}
					crashed = disk.CrashClone(rng)
				}
				return nil
			})
			running := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return crashed == nil
			}
			m := newModel(t, seed, open(t, fsys, topicConfig(t, small(t)...)))
			p.Store(m.p)
			for i := 0; running(); i++ {
				m.step()
				switch {
				case i%7 == 6:
					if err := m.p.sync(i%3 == 0); err != nil {
						t.Fatal(err)
					}
				case i%13 == 12:
					if err := m.n.checkpointPoints(); err != nil {
						t.Fatal(err)
					}
				case i%29 == 28:
					m.n.close()
					m.on(open(t, fsys, m.n.topic))
					p.Store(m.p)
				}
			}
			m.checkAfterPowerFailure(crashed, synced)
		})
	}
}

// checkAfterPowerFailure opens what a loss of power left.
func (m *model) checkAfterPowerFailure(disk *vfs.Mem, synced int64) {
	m.t.Helper()
	n := open(m.t, disk, m.n.topic)
	p := n.Get("t", 0)
	if p == nil {
		if synced > 0 {
			m.t.Fatalf("the partition is gone, %d was synced: %s", synced, n.logs)
		}
		return
	}
	if err := p.Err(); err != nil {
		m.t.Fatal(err, n.logs)
	}
	p = n.lead()
	end := p.Offsets().End
	if end < synced {
		m.t.Fatalf("the log ends at %d, %d was synced", end, synced)
	}
	for m.end() > end {
		m.batches = m.batches[:len(m.batches)-1]
	}
	m.check(p)
}

// TestDamagedSnapshots: the state is rebuilt from older ones, or from the log.
func TestDamagedSnapshots(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, disk *vfs.Mem, name string){
		"flipped":   func(t *testing.T, disk *vfs.Mem, name string) { flip(t, disk, name) },
		"truncated": func(t *testing.T, disk *vfs.Mem, name string) { overwrite(t, disk, name, readFile(t, disk, name)[:5]) },
		"missing": func(t *testing.T, disk *vfs.Mem, name string) {
			if err := disk.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, which := range []string{".snapshot", ".window"} {
			t.Run(name+which, func(t *testing.T) {
				disk := vfs.NewMem()
				m := newModel(t, 3, open(t, disk, topicConfig(t, small(t)...)))
				for range 40 {
					m.step()
				}
				m.n.close()
				files, err := disk.ReadDir("/data/t-0")
				if err != nil {
					t.Fatal(err)
				}
				var damaged int
				for _, f := range slices.Backward(files) {
					if strings.HasSuffix(f.Name(), which) && damaged < 2 && name+which != "missing.window" {
						damage(t, disk, filepath.Join("/data/t-0", f.Name()))
						damaged++
					}
				}
				m.on(open(t, disk, m.n.topic))
				m.check(m.p)
			})
		}
	}
}

func flip(t *testing.T, fsys vfs.FS, name string) {
	t.Helper()
	data := readFile(t, fsys, name)
	data[len(data)-1] ^= 0xff
	overwrite(t, fsys, name, data)
}

func overwrite(t *testing.T, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	if err := writeFile(fsys, name, data); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedTxnIndexIsRebuilt, also after a clean stop.
func TestDamagedTxnIndexIsRebuilt(t *testing.T) {
	disk := vfs.NewMem()
	m := newModel(t, 4, open(t, disk, topicConfig(t, small(t)...)))
	for range 60 {
		m.step()
	}
	m.n.close()
	files, err := disk.ReadDir("/data/t-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Join("/data/t-0", f.Name()); strings.HasSuffix(name, ".txnindex") {
			overwrite(t, disk, name, readFile(t, disk, name)[:20])
		}
	}
	m.on(open(t, disk, m.n.topic))
	m.check(m.p)
}
