package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// gate holds up the fsyncs of logs, and counts them.
type gate struct {
	began chan string // names of the files; unbuffered
	goOn  chan error  // what becomes of one
	open  atomic.Bool // nothing is held up
	count atomic.Int32
}

func newGate() *gate { return &gate{began: make(chan string), goOn: make(chan error)} }

func (g *gate) ask(op vfs.Op) error {
	if op.Kind != vfs.OpSync || !strings.HasSuffix(op.Name, ".log") {
		return nil
	}
	g.count.Add(1)
	if g.open.Load() {
		return nil
	}
	g.began <- op.Name
	return <-g.goOn
}

// leadAs makes a partition of its own topic with settings of its own.
func (n *node) leadAs(topic string, cfg *config.Topic) *Partition {
	n.t.Helper()
	p, err := n.Create(topic, protocol.UUID{byte(len(topic)), topic[0]}, 0, cfg, n.now)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
		n.t.Fatal(err)
	}
	return p
}

func mustAppend(t *testing.T, p *Partition, s spec) Appended {
	t.Helper()
	a, err := produce(t, p, s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAppendsShareSyncs with flush.messages=1: what comes while an fsync runs is made durable by the next one, all of it; until
// then it is not committed. Nobody else waits.
func TestAppendsShareSyncs(t *testing.T) {
	g := newGate()
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), topicConfig(t))
	p := n.leadAs("each", topicConfig(t, "flush.messages", "1"))
	others := []*Partition{n.leadAs("never", topicConfig(t)), n.leadAs("later", topicConfig(t, "flush.messages", "10"))}
	if a := mustAppend(t, p, spec{}); a.Flush != 1 {
		t.Errorf("%+v", a)
	}
	<-g.began
	for range 50 {
		mustAppend(t, p, spec{n: 2})
	}
	for _, q := range others {
		if a := mustProduce(t, q, spec{}); a.Flush != 0 {
			t.Errorf("%+v", a)
		}
	}
	if o := p.Offsets(); o.HW != 0 || o.LSO != 0 || o.End != 101 {
		t.Errorf("%+v", o)
	}
	if batches, _, err := read(t, p, ReadRequest{CurrentLeaderEpoch: -1}); err != nil || len(batches) != 0 {
		t.Errorf("%d batches that may be lost are read, %v", len(batches), err)
	}
	g.goOn <- nil
	<-g.began
	if err := p.AwaitHW(t.Context(), 1); err != nil || p.Offsets().HW != 1 {
		t.Errorf("%+v, %v", p.Offsets(), err)
	}
	g.goOn <- nil
	for _, await := range []func(context.Context, int64) error{p.AwaitHW, p.AwaitDurable} {
		if err := await(t.Context(), 101); err != nil {
			t.Error(err)
		}
	}
	if o := p.Offsets(); o.HW != 101 || o.LSO != 101 || g.count.Load() != 2 {
		t.Errorf("%+v, %d fsyncs", o, g.count.Load())
	}
	g.open.Store(true)
}

// TestPartitionsSyncAtOnce: one slow fsync holds up no other partition's.
func TestPartitionsSyncAtOnce(t *testing.T) {
	g := newGate()
	cfg := topicConfig(t, "flush.messages", "1")
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), cfg)
	const many = 16
	var all []*Partition
	for i := range many {
		p := n.leadAs(fmt.Sprint(i, "-topic"), cfg)
		mustAppend(t, p, spec{})
		all = append(all, p)
	}
	names := map[string]bool{}
	for range many {
		names[<-g.began] = true
	}
	if len(names) != many {
		t.Errorf("%d partitions", len(names))
	}
	for range many {
		g.goOn <- nil
	}
	for _, p := range all {
		if err := p.AwaitHW(t.Context(), 1); err != nil {
			t.Error(err)
		}
	}
	g.open.Store(true)
}

// TestAppendThatReachesTheCountSyncs, and only that.
func TestAppendThatReachesTheCountSyncs(t *testing.T) {
	var g gate
	g.open.Store(true)
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), topicConfig(t))
	p := n.leadAs("p", topicConfig(t, "flush.messages", "3"))
	for i, step := range []struct{ n, flush int }{{1, 0}, {1, 0}, {1, 3}, {2, 0}, {2, 7}, {5, 12}, {1, 0}} {
		a := mustProduce(t, p, spec{n: step.n})
		if a.Flush != int64(step.flush) {
			t.Errorf("%d: %+v", i, a)
		}
		if err := p.AwaitDurable(t.Context(), a.Flush); err != nil {
			t.Error(err)
		}
	}
	if p.log.Durable() != 12 || g.count.Load() != 3 {
		t.Errorf("durable %d, %d fsyncs", p.log.Durable(), g.count.Load())
	}
}

// TestFailedSharedSync: everybody who waits is told, the partition is offline, and no second fsync says that all is well.
func TestFailedSharedSync(t *testing.T) {
	g := newGate()
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), topicConfig(t))
	p, q := n.leadAs("p", topicConfig(t, "flush.messages", "1")), n.leadAs("qq", topicConfig(t, "flush.messages", "1"))
	mustAppend(t, p, spec{})
	<-g.began
	mustAppend(t, p, spec{})
	failed := make(chan error)
	go func() { failed <- p.AwaitHW(context.Background(), 2) }()
	go func() { failed <- p.AwaitDurable(context.Background(), 1) }()
	g.goOn <- syscall.EIO
	for range 2 {
		wantCode(t, <-failed, kerr.KafkaStorageError)
	}
	g.open.Store(true)
	wantCode(t, p.Sync(), kerr.KafkaStorageError)
	wantCode(t, p.AwaitHW(t.Context(), 1), kerr.KafkaStorageError)
	if g.count.Load() != 1 {
		t.Errorf("%d fsyncs", g.count.Load())
	}
	mustProduce(t, q, spec{})
	if got := strings.Count(n.logs.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d lines: %s", got, n.logs)
	}
}

// TestDuplicateWaitsToo: a batch that comes again is acknowledged only once the first one is durable.
func TestDuplicateWaitsToo(t *testing.T) {
	g := newGate()
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), topicConfig(t))
	p := n.leadAs("p", topicConfig(t, "flush.messages", "1"))
	mustAppend(t, p, spec{pid: 3})
	<-g.began
	if a := mustAppend(t, p, spec{pid: 3}); !a.Duplicate || a.Flush != 1 {
		t.Errorf("%+v", a)
	}
	g.goOn <- nil
	if err := p.AwaitDurable(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestFlushMessagesChangesAtRunTime: the high watermark waits no more, or from now on; it never goes back.
func TestFlushMessagesChangesAtRunTime(t *testing.T) {
	g := newGate()
	each, never := topicConfig(t, "flush.messages", "1"), topicConfig(t)
	n := open(t, vfs.Inject(vfs.NewMem(), g.ask), each)
	p := n.lead()
	mustAppend(t, p, spec{})
	<-g.began
	n.SetConfig("t", never)
	if hw := p.Offsets().HW; hw != 1 {
		t.Error(hw)
	}
	g.goOn <- nil
	if err := p.AwaitDurable(t.Context(), 1); err != nil {
		t.Error(err)
	}
	mustProduce(t, p, spec{n: 4})
	n.SetConfig("t", each)
	if o := p.Offsets(); o.HW != 5 {
		t.Errorf("%+v", o)
	}
	<-g.began // what was not durable becomes it without another append
	g.goOn <- nil
	if err := p.AwaitDurable(t.Context(), 5); err != nil {
		t.Error(err)
	}
}

// TestRecoveredRecordsAreMadeDurable before they count as committed, where that is asked for.
func TestRecoveredRecordsAreMadeDurable(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	for range 3 {
		mustProduce(t, n.lead(), spec{})
	}
	g := newGate()
	n = open(t, vfs.Inject(disk.CrashClone(nil), g.ask), topicConfig(t, "flush.messages", "1"))
	p := n.lead()
	<-g.began
	if o := p.Offsets(); o.HW != 0 || o.End != 3 {
		t.Errorf("%+v", o)
	}
	g.goOn <- nil
	if err := p.AwaitHW(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

// TestFullDiskKeepsTheRecoveryPoint: an index that there is no room for keeps the recovery point, but no acknowledgement.
func TestFullDiskKeepsTheRecoveryPoint(t *testing.T) {
	var disk switched
	n := open(t, vfs.Inject(vfs.NewMem(), disk.ask), topicConfig(t, "flush.messages", "1"))
	p := n.lead()
	mustProduce(t, p, spec{pid: 3, txn: true})
	disk.set(func(op vfs.Op) error {
		if strings.HasSuffix(op.Name, extTxnIndex) {
			return syscall.ENOSPC
		}
		return nil
	})
	last := endTxn(t, p, 3, 0, false)
	if err := p.AwaitHW(t.Context(), last+1); err != nil {
		t.Fatal(err)
	}
	point := p.log.RecoveryPoint()
	mustProduce(t, p, spec{})
	if p.log.RecoveryPoint() != point || p.log.Durable() != last+2 {
		t.Errorf("recovery point %d after %d, durable %d", p.log.RecoveryPoint(), point, p.log.Durable())
	}
	disk.set(nil)
	mustProduce(t, p, spec{})
	if p.log.RecoveryPoint() != last+2 {
		t.Errorf("recovery point %d, want %d", p.log.RecoveryPoint(), last+2)
	}
}

// TestAcknowledgedSurvives: with flush.messages=1 every acknowledged record is there after a loss of power, whoever appended and
// whatever was going on.
func TestAcknowledgedSurvives(t *testing.T) {
	rounds := 12
	if raceEnabled || testing.Short() {
		rounds = 3
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		disk := vfs.NewMem()
		cfg := topicConfig(t, append(small(t), "flush.messages", "1")...)
		const partitions, writers = 3, 6
		var mu sync.Mutex // held over a clone, and to note what was acknowledged before it
		acked := map[string]int64{}
		var crashed *vfs.Mem
		var acked0 map[string]int64
		countdown := 20 + rng.IntN(400)
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if countdown--; countdown == 0 {
				acked0 = map[string]int64{}
				for k, v := range acked {
					acked0[k] = v
				}
				crashed = disk.CrashClone(rng)
			}
			return nil
		})
		n := open(t, fsys, cfg)
		var all []*Partition
		for i := range partitions {
			all = append(all, n.leadAs(fmt.Sprint(i, "-topic"), cfg))
		}
		var running sync.WaitGroup
		for w := range writers {
			running.Go(func() {
				for i := range int32(30) {
					p := all[w%partitions]
					a, err := produce(t, p, spec{pid: int64(w + 1), seq: i})
					if err == nil {
						err = p.AwaitHW(context.Background(), a.LastOffset+1)
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked[p.topic] = max(acked[p.topic], a.LastOffset+1)
					mu.Unlock()
				}
			})
		}
		running.Wait()
		mu.Lock()
		if crashed == nil {
			acked0, crashed = acked, disk.CrashClone(rng)
		}
		mu.Unlock()
		again := open(t, crashed, cfg)
		for topic, want := range acked0 {
			p := again.Get(topic, 0)
			if p == nil || p.Err() != nil || p.Offsets().End < want {
				t.Fatalf("seed %d: %s lost records below %d\n%s", seed, topic, want, again.logs)
			}
		}
	}
}

// TestIdlePartitionBecomesDurable: what nobody appends to any more is synced by the housekeeping, with nobody waiting.
func TestIdlePartitionBecomesDurable(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	p.quiesce() // it was in use since the last time
	if p.log.Durable() != 0 {
		t.Error("synced while in use")
	}
	p.quiesce()
	if err := p.AwaitDurable(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// TestOpenFilesAreWithinTheLimit of the process, whatever it is.
func TestOpenFilesAreWithinTheLimit(t *testing.T) {
	if n, limit := openFiles(), vfs.OpenFilesMax(); n > maxOpenFiles || n > max(16, limit/2) || n < 16 {
		t.Errorf("%d open files, the process may have %d", n, limit)
	}
}
