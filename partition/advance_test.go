package partition

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"oncelog/internal/vfs"
)

func (p *Partition) advance() error { return p.sync(true) }

// readings counts the bytes that are read of segments.
type readings struct {
	mu    sync.Mutex
	bytes int64
}

func (r *readings) ask(op vfs.Op) error {
	if op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, ".log") {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bytes += int64(op.Len)
	}
	return nil
}

// TestRecoveryIsBounded: however much was appended, to however many partitions, a kill leaves at most log.recovery.max.bytes to read again, and they are
// read once; the state of producers and transactions is what it was.
func TestRecoveryIsBounded(t *testing.T) {
	const limit, partitions = 256 << 10, 4
	disk := vfs.NewMem()
	cfg := topicConfig(t, "index.interval.bytes", "1000", "internal.segment.bytes", "1500000")
	n := open(t, disk, cfg)
	n.shared.advancer.limit.Store(limit)
	var all []*Partition
	for i := range partitions {
		all = append(all, n.leadAs(fmt.Sprint(i, "-topic"), cfg))
	}
	seqs := map[int64]int32{}
	next := func(p *Partition, s spec) {
		s.seq = seqs[s.pid]
		mustProduce(t, p, s)
		seqs[s.pid]++
		n.shared.advancer.rounds.running.Wait()
	}
	value := strings.Repeat("v", 5000)
	for i := range 600 {
		k := int64(min(i%7, partitions-1)) // one gets more than the others
		p := all[k]
		next(p, spec{pid: 10 + k, value: value})
		next(p, spec{pid: 20 + k, value: value[:100], txn: true})
		if i%3 == 0 {
			endTxn(t, p, 20+k, 0, i%2 == 0)
		}
		if i%97 != 96 {
			continue
		}
		var r readings
		again := open(t, vfs.Inject(disk.CrashClone(nil), r.ask), cfg)
		if most := int64(limit/2 + partitions*(16<<10)); r.bytes > most {
			t.Errorf("after %d: read %d bytes, at most %d may be behind", i, r.bytes, limit/2)
		}
		for _, p := range all {
			q := again.Get(p.topic, 0)
			if err := q.Lead(9, []int32{1}, []int32{1}); err != nil {
				t.Fatal(err)
			}
			if q.Err() != nil || q.Offsets().End != p.Offsets().End || dump(q.mu.table) != dump(p.mu.table) {
				t.Errorf("%s: %+v, %v, producers\n%s\nwere\n%s", p.topic, q.Offsets(), q.Err(), dump(q.mu.table), dump(p.mu.table))
			}
			if got, want := abortedFrom(t, q, 0), abortedFrom(t, p, 0); !slices.Equal(got, want) || len(want) < 2 {
				t.Errorf("%s: aborted %v, want %v", p.topic, got, want)
			}
		}
		again.Abandon()
	}
	if files := names(t, disk, "/data/3-topic-0"); len(files) > 60 {
		t.Errorf("%d files: %v", len(files), files)
	}
	if all[0].Size() < limit {
		t.Errorf("only %d bytes", all[0].Size())
	}
}

// TestAppendsWaitForASlowDisk: a disk that takes nothing holds up clients before there is more than log.recovery.max.bytes to read again.
func TestAppendsWaitForASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 256 << 10
		stuck := make(chan struct{})
		fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
				<-stuck
			}
			return nil
		})
		n := open(t, fsys, topicConfig(t))
		n.shared.advancer.limit.Store(limit)
		p := n.lead()
		var clients sync.WaitGroup
		clients.Go(func() {
			for range 200 {
				mustProduce(t, p, spec{pid: -1, value: strings.Repeat("v", 5000)})
			}
		})
		synctest.Wait()
		if size := p.Size(); size < limit/4 || size > limit {
			t.Errorf("%d bytes before the client waits, the limit is %d", size, limit)
		}
		close(stuck)
		clients.Wait()
	})
}

// TestRecoveryBeginsWithTheSnapshotWithin: what is below the recovery point is not read, and a damaged snapshot there costs no more than that.
func TestRecoveryBeginsWithTheSnapshotWithin(t *testing.T) {
	for _, damage := range []string{"", "snapshot", "window", "txnindex", "cut"} {
		t.Run(damage, func(t *testing.T) {
			disk := vfs.NewMem()
			n := open(t, disk, topicConfig(t, "index.interval.bytes", "500"))
			m := newModel(t, 5, n)
			for range 500 {
				m.step()
			}
			if err := m.p.advance(); err != nil {
				t.Fatal(err)
			}
			if err := n.checkpointPoints(); err != nil {
				t.Fatal(err)
			}
			at := m.p.Offsets().End
			for range 30 {
				m.step()
			}
			n.Abandon()
			var r readings
			switch damage {
			case "snapshot", "window":
				flip(t, disk, fmt.Sprintf("/data/t-0/%020d.%s", at, damage))
			case "txnindex":
				name := fmt.Sprintf("/data/t-0/%020d.txnindex", 0)
				overwrite(t, disk, name, readFile(t, disk, name)[:50])
			case "cut": // below what was promised to be durable
				name := fmt.Sprintf("/data/t-0/%020d.log", 0)
				data, bytes := readFile(t, disk, name), 0
				for i, b := range m.batches {
					if b.Header().LastOffset()+1 >= at {
						m.batches = m.batches[:i]
						break
					}
					bytes += len(b)
				}
				overwrite(t, disk, name, data[:bytes])
			}
			n = open(t, vfs.Inject(disk, r.ask), n.topic)
			read := r.bytes
			m.on(n)
			m.check(m.p)
			if size := m.p.Size(); damage == "" && read > size/2 { // 30 of 530 batches, and some blocks
				t.Errorf("read %d of %d bytes", read, size)
			}
		})
	}
}

// TestAdvanceKeepsTwoSnapshots within segments, and those at their bases.
func TestAdvanceKeepsTwoSnapshots(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t, "internal.segment.bytes", "2000"))
	p := n.lead()
	var bases []int64
	for i := range int32(100) {
		mustProduce(t, p, spec{pid: 1, seq: i})
		if err := p.advance(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range p.log.Segments() {
		bases = append(bases, s.Base)
	}
	within := slices.DeleteFunc(slices.Clone(p.mu.snapshots), func(offset int64) bool { return slices.Contains(bases, offset) })
	if len(within) != 2 || len(p.mu.snapshots) != len(bases)-1+2 {
		t.Errorf("snapshots %v, segments %v", p.mu.snapshots, bases)
	}
	for _, offset := range p.mu.snapshots {
		readFile(t, disk, p.path(offset, extSnapshot))
	}
}
