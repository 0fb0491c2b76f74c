package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"oncelog/internal/vfs"
)

// crashModel writes what a cleaning is to work on, all of it durable, and gives what must be read after any crash.
func crashModel(t *testing.T, fsys vfs.FS, disk *vfs.Mem, seed uint64) *cleanerModel {
	t.Helper()
	m := &cleanerModel{t: t, rng: rand.New(rand.NewPCG(seed, 3)), now: start, disk: disk, records: map[int64]written{}, epochs: map[int64]int16{},
		next: map[int64]int32{}, last: map[int64]spec{}, txn: map[int64][]int64{}, cleaned: map[int64]time.Time{}}
	m.n = open(t, fsys, topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "900", "index.interval.bytes", "200",
		"min.cleanable.dirty.ratio", "0", "delete.retention.ms", fmt.Sprint(modelRetention)))
	c := m.n.shared.cleaner // only the test cleans, however long it takes
	c.mu.Lock()
	for _, cancel := range c.mu.workers {
		cancel()
	}
	c.mu.Unlock()
	m.p = m.n.lead()
	m.fill()
	return m
}

func (m *cleanerModel) fill() {
	m.t.Helper()
	for range 50 {
		m.step()
	}
	for pid := range m.txn { // what is open isn't cleaned
		m.endTxn(pid)
	}
	m.produce(0)
	if err := m.p.Sync(); err != nil {
		m.t.Fatal(err)
	}
	if err := errors.Join(m.n.checkpointPoints(), m.n.checkpointHighWatermarks()); err != nil {
		m.t.Fatal(err)
	}
	end := m.p.Offsets().End
	for offset := range end {
		m.cleaned[offset] = m.now
	}
}

// reopened checks a copy of the disk.
func (m *cleanerModel) reopened(disk *vfs.Mem, what string) {
	m.t.Helper()
	n, err := tryOpen(m.t, disk, "/data", m.n.topic)
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	defer n.Abandon()
	if n.Get("t", 0) == nil {
		m.t.Fatalf("%s: the partition is gone: %s", what, n.logs)
	}
	again := *m
	again.n, again.disk, again.p = n, disk, n.lead()
	if err := again.p.Err(); err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	if got, want := again.p.Offsets().End, m.p.Offsets().End; got != want {
		m.t.Fatalf("%s: end %d, want %d", what, got, want)
	}
	again.check(what)
	again.checkProducers(what)
}

// TestCleaningCrashAtEveryOperation: power is lost before each operation of a cleaning; what was durable is there, to readers and producers.
func TestCleaningCrashAtEveryOperation(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	crashes := 0
	for seed := range seeds {
		disk := vfs.NewMem()
		var m *cleanerModel
		var cleaning atomic.Bool
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			if !cleaning.Load() || !op.Kind.Changes() {
				return nil
			}
			cleaning.Store(false) // what a check does is none of the cleaning's
			crashes++
			what := fmt.Sprintf("seed %d, crash %d before %v %s", seed, crashes, op.Kind, op.Name)
			m.reopened(disk.CrashClone(rand.New(rand.NewPCG(seed, uint64(crashes)))), what)
			m.reopened(disk.CrashClone(nil), what+" (killed)")
			cleaning.Store(true)
			return nil
		})
		m = crashModel(t, fsys, disk, seed)
		for i := range 3 {
			cleaning.Store(true)
			m.n.clean(m.p, m.now)
			cleaning.Store(false)
			m.check(fmt.Sprintf("seed %d, cleaning %d", seed, i))
			m.now = m.now.Add(time.Duration(modelRetention+1) * time.Millisecond)
			m.fill()
		}
		m.n.Abandon()
	}
	if crashes < 100 {
		t.Errorf("only %d crashes", crashes)
	}
	t.Logf("%d crashes", crashes)
}

// TestCleaningEveryFaultOnce: each operation of a cleaning fails once. The cleaning is given up and the partition goes on, or it is offline and says so;
// after a restart everything is there.
func TestCleaningEveryFaultOnce(t *testing.T) {
	faults := []error{syscall.EIO, syscall.ENOSPC}
	offline, total := 0, 0
	for at := 1; total == at-1; at++ { // until there are no more
		disk := vfs.NewMem()
		var mu sync.Mutex // a sync in the background may ask, too
		cleaning, count := false, 0
		var failed vfs.Op
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !cleaning {
				return nil
			}
			if count++; count == at {
				failed = op
				return faults[at%len(faults)]
			}
			return nil
		})
		m := crashModel(t, fsys, disk, 1)
		d, _, err := m.p.inspectDirty(m.now)
		if err != nil || !d.wanted(m.p.cfg.Load()) {
			t.Fatal(d, err)
		}
		c := m.n.shared.cleaner
		c.mu.Lock()
		c.mu.running[m.p] = true
		c.mu.Unlock()
		turn := func(on bool) {
			mu.Lock()
			defer mu.Unlock()
			cleaning = on
		}
		turn(true)
		c.clean(context.Background(), m.p, d, m.now)
		turn(false)
		total = max(total, min(count, at))
		what := fmt.Sprintf("fault %d (%v %s)", at, failed.Kind, failed.Name)
		if m.p.Err() == nil {
			m.check(what)
			m.produce(0)
		} else if offline++; !errors.Is(m.p.Err(), faults[at%len(faults)]) {
			t.Fatalf("%s: %v", what, m.p.Err())
		}
		m.n.Abandon()
		m.reopened(disk.CrashClone(nil), what)
	}
	if total < 100 || offline > total/2 {
		t.Errorf("%d operations, %d took the partition offline", total, offline)
	}
	t.Logf("%d operations, %d took the partition offline", total, offline)
}

// TestCleaningBesideReaders: while a partition is cleaned again and again, consumers of both isolations, appends, transactions and syncs go on; no reader sees an
// aborted record, or misses one that counts.
func TestCleaningBesideReaders(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "2000", "min.cleanable.dirty.ratio", "0", "delete.retention.ms", "0"))
	n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=0")) // the test cleans
	p := n.lead()
	done, failed := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	var once sync.Once
	repeat := func(do func() error) {
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := do(); err != nil {
					t.Error(err)
					once.Do(func() { close(failed) })
					return
				}
			}
		})
	}
	cleaned := make(chan struct{}, 1) // a cleaning has ended
	now := start
	repeat(func() error {
		now = now.Add(time.Second)
		d, _, err := p.inspectDirty(now)
		if err != nil || !d.wanted(p.cfg.Load()) {
			return err
		}
		_, err = n.shared.cleaner.cleanOnce(context.Background(), p, d, now)
		p.compaction.mu.Lock()
		p.compaction.mu.cleaned = 0
		p.compaction.mu.Unlock()
		select {
		case cleaned <- struct{}{}:
		default:
		}
		return err
	})
	repeat(p.Sync)
	var stays keepers
	for _, i := range []Isolation{ReadCommitted, ReadUncommitted, ReadCommitted} {
		repeat(func() error { return stays.check(t, p, i) })
	}
	writeBeside(t, p, &stays, func() {
		select {
		case <-cleaned:
		case <-failed:
		}
	})
	close(done)
	running.Wait()
	for _, i := range []Isolation{ReadCommitted, ReadUncommitted} {
		if err := stays.check(t, p, i); err != nil {
			t.Error(err)
		}
		if _, position := consume(t, p, i); position != p.Offsets().End {
			t.Errorf("isolation %d: came to %d of %d", i, position, p.Offsets().End)
		}
	}
}

// writeBeside writes records that are superseded and such that stay, and transactions of both outcomes. pause waits for a cleaning.
func writeBeside(t *testing.T, p *Partition, stays *keepers, pause func()) {
	t.Helper()
	epochs := map[int64]int16{}
	for i := range 200 {
		if i%20 == 19 { // so that the log grows no faster than it is cleaned
			pause()
		}
		mustProduce(t, p, spec{keys: []string{"counter"}, value: fmt.Sprint(i)})
		stays.add(mustProduce(t, p, spec{keys: []string{fmt.Sprint("stays ", i)}}).LastOffset)
		pid, commit := int64(1+i%3), i%2 == 0
		value := map[bool]string{true: "committed", false: "aborted"}[commit]
		if _, err := produce(t, p, spec{pid: pid, epoch: epochs[pid], txn: true, keys: []string{"in a transaction"}, value: value}); err != nil {
			t.Fatal(err)
		}
		epochs[pid]++
		if _, err := p.WriteMarker(MarkerRequest{ProducerID: pid, Epoch: epochs[pid], Commit: commit, TransactionVersion: 2, ExpectEpoch: -1, Now: start}); err != nil {
			t.Fatal(err)
		}
	}
}

// keepers are offsets of records that nothing supersedes.
type keepers struct {
	sync.Mutex
	offsets []int64
}

func (k *keepers) add(offset int64) {
	k.Lock()
	defer k.Unlock()
	k.offsets = append(k.offsets, offset)
}

// check reads everything: of the keepers none may be missing below where the reader came to. It may stop below its bound if what lies between was
// superseded just now by what lies above.
func (k *keepers) check(t *testing.T, p *Partition, i Isolation) error {
	k.Lock()
	want := slices.Clone(k.offsets)
	k.Unlock()
	list, position := consume(t, p, i)
	found, last := map[int64]bool{}, int64(-1)
	for _, s := range list {
		if s.offset <= last || i == ReadCommitted && s.value == "aborted" {
			return fmt.Errorf("isolation %d: %+v behind %d", i, s, last)
		}
		last, found[s.offset] = s.offset, true
	}
	for _, offset := range want {
		if offset < position && !found[offset] {
			return fmt.Errorf("isolation %d: %d is missing below %d", i, offset, position)
		}
	}
	return nil
}
