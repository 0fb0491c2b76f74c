package partition

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// life is a history of a set in which everything happens that changes its disk: creation, first appends, transactions, rolls, syncs,
// checkpoints, new epochs, deletion of records, segments and partitions, a namesake, idleness, clean stops and starts.
type life struct {
	t     *testing.T
	disk  *vfs.Mem
	fsys  vfs.FS
	cfg   *config.Topic
	n     *node
	quits bool // the first error fails the test; else the history goes on without what failed

	mu   sync.Mutex // over promises and what they are made of: the file system asks for them at each operation
	all  map[protocol.UUID]*lived
	seq  map[int64]int32
	step string
	errs map[string][]error // of appends, by topic
}

// lived is one partition of a life.
type lived struct {
	topic   string
	p       *Partition // nil while the set is closed
	offered []protocol.Batch
	acked   int64 // end of what was acknowledged
	synced  int64 // of what is durable by promise, as of the last step
	start   int64 // log start that a checkpoint has
	deleted bool  // its deletion has begun
}

// promises are what has to be there after a loss of power.
type promises map[protocol.UUID]lived

func (l *life) promises() promises {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := promises{}
	for id, v := range l.all {
		if v.p != nil && !v.deleted && v.p.Err() == nil {
			v.synced = max(v.synced, v.p.log.Durable())
		}
		made[id] = lived{topic: v.topic, acked: v.acked, synced: v.synced, start: v.start, deleted: v.deleted}
	}
	return made
}

// where is the step that is being done.
func (l *life) where() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.step
}

func (l *life) do(step string, what func() error) bool {
	l.mu.Lock()
	l.step = step
	l.mu.Unlock()
	err := what()
	if err != nil && l.quits {
		l.t.Fatalf("%s: %v", step, err)
	}
	return err == nil
}

// opened opens the set and leads all its partitions in a new epoch.
func (l *life) opened() bool {
	return l.do("open", func() error {
		n, err := tryOpen(l.t, l.fsys, "/data", l.cfg)
		if err != nil {
			l.n = nil
			return err
		}
		l.n = n
		for p := range l.n.All() {
			l.mu.Lock()
			if v := l.all[p.id]; v != nil {
				v.p = p
			}
			l.mu.Unlock()
			err = errors.Join(err, p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}))
		}
		return err
	})
}

func (l *life) closed() {
	l.do("close", func() error {
		l.mu.Lock()
		for _, v := range l.all {
			v.p = nil
		}
		l.mu.Unlock()
		return l.n.Close()
	})
}

func (l *life) create(topic string, id byte) *lived {
	v := &lived{topic: topic}
	l.do("create "+topic, func() (err error) {
		p, err := l.n.Create(topic, protocol.UUID{id}, 0, l.cfg, start)
		if err != nil {
			return err
		}
		l.mu.Lock()
		v.p = p
		l.all[p.id] = v
		l.mu.Unlock()
		if id%2 == 0 {
			p.make()
		}
		return p.Lead(0, []int32{1}, []int32{1})
	})
	return v
}

// append appends a batch to a partition; of a producer it takes the next sequence.
func (l *life) append(v *lived, s spec) bool {
	if v.p == nil {
		return false
	}
	s.seq = l.seq[s.pid]
	ok := l.do("append to "+v.topic, func() error {
		r := s.request(l.t)
		if s.txn {
			g, _, err := v.p.Verify(s.pid, 0, s.seq, false, start)
			if err != nil {
				return err
			}
			r.Guard = g
		}
		return l.write(v, r)
	})
	if ok && s.pid != 0 {
		l.seq[s.pid] += int32(max(1, s.n))
	}
	return ok
}

func (l *life) end(v *lived, pid int64, commit bool) {
	if v.p == nil {
		return
	}
	l.do("end in "+v.topic, func() error {
		b := controlmarkers.Encode(controlmarkers.Marker{Commit: commit}, pid, 0, start.UnixMilli())
		return l.write(v, AppendRequest{Batch: b, Origin: OriginCoordinator, Acks: -1, ExpectEpoch: -1, Now: start})
	})
}

func (l *life) write(v *lived, r AppendRequest) error {
	a, err := v.p.Append(r)
	if err == nil {
		err = v.p.AwaitHW(l.t.Context(), a.LastOffset+1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v.offered = append(v.offered, slices.Clone(r.Batch))
	if err != nil {
		l.errs[v.topic] = append(l.errs[v.topic], err)
	}
	if err == nil {
		v.acked = max(v.acked, a.LastOffset+1)
	}
	return err
}

func (l *life) checkpoint() {
	l.do("checkpoint", func() error {
		starts := map[*lived]int64{}
		for _, v := range l.all {
			if v.p != nil && v.p.log != nil {
				starts[v] = v.p.log.Start()
			}
		}
		if err := errors.Join(l.n.checkpointPoints(), l.n.checkpointHighWatermarks()); err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for v, at := range starts {
			v.start = at
		}
		return nil
	})
}

func (l *life) delete(v *lived) {
	l.do("delete "+v.topic, func() error {
		l.mu.Lock()
		v.deleted = true
		l.mu.Unlock()
		return l.n.Delete(v.topic, 0)
	})
}

// on does something with a partition that is there.
func (l *life) on(v *lived, step string, what func(p *Partition) error) {
	if v.p != nil && v.p.Err() == nil {
		l.do(step, func() error { return what(v.p) })
	}
}

func (l *life) run() {
	if !l.opened() {
		return
	}
	a, b := l.create("a", 1), l.create("b", 2)
	for i := range 6 {
		l.append(a, spec{pid: 1, n: 1 + i%2})
		l.append(b, spec{pid: 2, txn: true})
	}
	l.end(b, 2, false)
	l.on(a, "sync", (*Partition).Sync)
	l.checkpoint()
	l.on(a, "new epoch", func(p *Partition) error { return p.Lead(3, []int32{1}, []int32{1}) })
	for i := range 8 {
		l.append(a, spec{pid: 3, txn: true})
		l.append(b, spec{n: 2})
		if i%3 == 2 {
			l.end(a, 3, i == 2)
		}
	}
	l.on(b, "advance", (*Partition).advance)
	l.checkpoint()
	l.append(b, spec{pid: 2, txn: true})
	l.append(b, spec{n: 2})
	l.end(b, 2, false)
	l.on(b, "advance", (*Partition).advance)
	l.append(b, spec{pid: 5})
	l.on(b, "sync", (*Partition).Sync)
	l.on(a, "delete records", func(p *Partition) error { _, err := p.DeleteRecords(min(9, p.Offsets().HW)); return err })
	l.checkpoint()
	l.on(a, "retention", func(p *Partition) error { return p.retain(start) })
	l.on(a, "roll", func(p *Partition) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.rollLocked(start)
	})
	l.delete(b)
	c := l.create("b", 3)
	for range 3 {
		l.append(c, spec{pid: 4})
		l.append(a, spec{pid: 1})
	}
	l.on(a, "idle", func(p *Partition) error { p.quiesce(); p.quiesce(); return p.Err() })
	l.closed()
	if !l.opened() {
		return
	}
	l.append(c, spec{pid: 4})
	l.append(a, spec{pid: 1})
	l.on(c, "sync", (*Partition).Sync)
	l.append(c, spec{pid: 4})
	l.on(a, "advance", (*Partition).advance)
	l.checkpoint()
	l.append(a, spec{pid: 3, txn: true})
	l.end(a, 3, false)
	l.append(a, spec{pid: 1})
	l.closed()
}

func newLife(t *testing.T, disk *vfs.Mem, quits bool, injector vfs.Injector) *life {
	return &life{
		t: t, disk: disk, fsys: vfs.Inject(disk, injector), quits: quits, all: map[protocol.UUID]*lived{}, seq: map[int64]int32{}, errs: map[string][]error{},
		cfg: topicConfig(t, append(small(t), "file.delete.delay.ms", "0")...),
	}
}

// after opens what is left of a life and checks it: what was promised is there, nothing is that was not offered, and what follows from the log is
// what a fresh fold gives; then it takes records on, and stops and starts in order.
func (l *life) after(disk *vfs.Mem, made promises, lost bool) error {
	n, err := tryOpen(l.t, disk, "/data", l.cfg)
	if err != nil {
		return err
	}
	defer n.Abandon()
	for id, v := range made {
		p := n.GetByID(id, 0)
		want, logStart := v.acked, int64(0) // a checkpoint that can't be read counts as empty, as in Kafka
		if lost {
			want, logStart = v.synced, v.start
		}
		switch {
		case v.deleted && p == nil:
		case p == nil && want > 0:
			return fmt.Errorf("%s (%x) is gone, %d were there\n%s", v.topic, id[0], want, n.logs)
		case p == nil:
		case p.Err() != nil:
			return fmt.Errorf("%s is offline: %w", v.topic, p.Err())
		case !v.deleted && (p.Offsets().End < want || p.Offsets().Start < logStart):
			return fmt.Errorf("%s is %+v, %d were there, start %d\n%s", v.topic, p.Offsets(), want, logStart, n.logs)
		}
	}
	for p := range n.All() {
		if err := l.compare(p, lost); err != nil {
			return fmt.Errorf("%s: %w\n%s", p.topic, err, n.logs)
		}
	}
	return l.goesOn(n, disk)
}

// compare checks one partition against all that it was ever offered. What an error of reading may cost is looked for only in a whole one: the epochs
// below the log start of before, and the windows of producers.
func (l *life) compare(p *Partition, whole bool) error {
	v := l.all[p.id]
	if v == nil || v.topic != p.topic {
		return fmt.Errorf("invented partition %x", p.id)
	}
	o := p.Offsets()
	aborted := controlmarkers.Index{}
	fold := func(table *idempotence.Table, b protocol.Batch) error {
		h := b.Header()
		return replayBatch(table, b, &h, start.UnixMilli(), func(e idempotence.Ended) (err error) {
			if !e.Commit && e.Last >= o.Start {
				aborted, err = aborted.Add(e.Aborted)
			}
			return err
		})
	}
	table := idempotence.New()
	if whole { // what lies below the start counts for what follows from the log
		for _, b := range v.offered {
			if b.Header().BaseOffset < o.End {
				if err := fold(table, b); err != nil {
					return err
				}
			}
		}
	}
	for b, err := range p.Batches(o.Start) {
		if err != nil {
			return err
		}
		h := b.Header()
		if !slices.ContainsFunc(v.offered, func(offered protocol.Batch) bool { return bytes.Equal(offered, b) }) {
			return fmt.Errorf("batch at %d was not offered", h.BaseOffset)
		}
		if at := p.epochs.Load().at(max(o.Start, h.BaseOffset)); at != h.LeaderEpoch && (whole || at >= 0) {
			return fmt.Errorf("epoch at %d is %d, the batch has %d: %v", h.BaseOffset, at, h.LeaderEpoch, *p.epochs.Load())
		}
		if !whole {
			if err := fold(table, b); err != nil {
				return err
			}
		}
	}
	for _, a := range aborted {
		found, err := p.txns.collect(nil, a.First, a.Last+1)
		if err != nil || !slices.ContainsFunc(found, func(f controlmarkers.Aborted) bool {
			return f.ProducerID == a.ProducerID && f.First <= a.First && f.Last == a.Last
		}) {
			return fmt.Errorf("aborted %+v is not in the index: %v, %w", a, found, err)
		}
	}
	if !whole && o.Start > 0 {
		return nil // the fold from the middle lacks what came before
	}
	show := dump
	if !whole { // an unreadable window file leaves each producer its last batch, as Kafka has it
		show = func(t *idempotence.Table) string {
			entries, err := idempotence.ParseSnapshot(t.AppendSnapshot(nil))
			return fmt.Sprint(entries, err)
		}
	}
	if got, want := show(p.mu.table), show(table); got != want {
		return fmt.Errorf("producers\n%s\nwant\n%s", got, want)
	}
	return nil
}

// goesOn appends a record to each partition, stops and starts.
func (l *life) goesOn(n *node, disk *vfs.Mem) error {
	ends := map[string]int64{}
	for p := range n.All() {
		if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
			return err
		}
		a, err := p.Append(spec{}.request(l.t))
		if err != nil {
			return fmt.Errorf("append after the start: %w", err)
		}
		ends[p.topic] = a.LastOffset + 1
	}
	if err := n.Close(); err != nil {
		return err
	}
	again, err := tryOpen(l.t, disk, "/data", l.cfg)
	if err != nil {
		return err
	}
	defer again.Abandon()
	got := map[string]int64{}
	for p := range again.All() {
		got[p.topic] = p.Offsets().End
	}
	if !maps.Equal(got, ends) {
		return fmt.Errorf("after a clean stop the ends are %v, were %v\n%s", got, ends, again.logs)
	}
	return nil
}

// TestPowerFailureAtEachOperation takes the disk as a loss of power could leave it before each operation of a life.
func TestPowerFailureAtEachOperation(t *testing.T) {
	seeds := uint64(4)
	if raceEnabled || testing.Short() {
		seeds = 1
	}
	type crash struct {
		op, step string
		disk     *vfs.Mem
		promises promises
	}
	for seed := range seeds {
		var crashes []crash
		var mu sync.Mutex
		disk := vfs.NewMem()
		rng := rand.New(rand.NewPCG(seed, 3))
		var l *life
		l = newLife(t, disk, true, func(op vfs.Op) error {
			if !op.Kind.Changes() {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			made := l.promises()
			crashes = append(crashes, crash{fmt.Sprint(op.Kind, " ", op.Name), l.where(), disk.CrashClone(rng), made})
			return nil
		})
		l.run()
		crashes = append(crashes, crash{"end", "end", disk.CrashClone(rng), l.promises()})
		for i, c := range crashes {
			what := fmt.Sprintf("seed %d, crash %d of %d, before %s within %s", seed, i, len(crashes), c.op, c.step)
			if i%16 == int(seed) {
				l.interrupt(c.disk.CrashClone(nil), c.promises, rng, what)
			}
			if err := l.after(c.disk, c.promises, true); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		t.Log(len(crashes), "crashes")
	}
}

// interrupt loses power again, before each operation of the start that follows the first time.
func (l *life) interrupt(disk *vfs.Mem, made promises, rng *rand.Rand, what string) {
	l.t.Helper()
	var again []*vfs.Mem
	var ops []vfs.Op
	var mu sync.Mutex
	n, err := tryOpen(l.t, vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind.Changes() {
			mu.Lock()
			defer mu.Unlock()
			again, ops = append(again, disk.CrashClone(rng)), append(ops, op)
		}
		return nil
	}), "/data", l.cfg)
	if err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	n.Abandon()
	for i, disk := range again {
		if err := l.after(disk, made, true); err != nil {
			l.t.Fatalf("%s, again before %s %s: %v", what, ops[i].Kind, ops[i].Name, err)
		}
	}
}

// TestEachErrorOnce fails each operation of a life, once: the others that need it not go on, and what was acknowledged is there after a restart.
func TestEachErrorOnce(t *testing.T) {
	stride := 1
	if raceEnabled || testing.Short() {
		stride = 7
	}
	for _, boom := range []error{syscall.EIO, syscall.ENOSPC} {
		for target := 1; ; target += stride {
			disk := vfs.NewMem()
			var mu sync.Mutex
			var failed vfs.Op
			var step string
			count := 0
			var l *life
			l = newLife(t, disk, false, func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if op.Kind == vfs.OpClose || op.Kind == vfs.OpUsage {
					return nil
				}
				if count++; count == target {
					failed, step = op, l.where()
					return boom
				}
				return nil
			})
			l.run()
			if count < target {
				break
			}
			if l.n != nil {
				l.n.Abandon()
			}
			what := fmt.Sprintf("%v at operation %d, %s %s within %s", boom, target, failed.Kind, failed.Name, step)
			if err := l.harmed(failed.Name, boom); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := l.after(disk.CrashClone(nil), l.promises(), false); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

// harmed checks whom an error has met: appends to the partition whose file it was of are answered KAFKA_STORAGE_ERROR, with the cause, and no others are. An
// error in the log directory itself may meet anybody.
func (l *life) harmed(name string, cause error) error {
	below, _ := strings.CutPrefix(name, "/data/")
	dir, _, inside := strings.Cut(strings.TrimPrefix(below, "/"), "/")
	for topic, errs := range l.errs {
		for _, err := range errs {
			if inside && !strings.HasPrefix(dir, topic+"-") {
				return fmt.Errorf("an append to %s is refused: %w", topic, err)
			}
			if !isCode(err, kerr.KafkaStorageError) || !errors.Is(err, cause) && !strings.Contains(err.Error(), "producers") {
				return fmt.Errorf("an append to %s is refused for something else: %w", topic, err)
			}
		}
	}
	return nil
}

// TestOneErrorHarmsOnePartition: an error in one partition's directory keeps no other from anything.
func TestOneErrorHarmsOnePartition(t *testing.T) {
	var disk switched
	cfg := topicConfig(t, small(t)...)
	n := open(t, vfs.Inject(vfs.NewMem(), disk.ask), cfg)
	for _, kind := range []vfs.Kind{vfs.OpCreate, vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename, vfs.OpTruncate, vfs.OpRead} {
		bad, good := n.leadAs("bad-"+kind.String(), cfg), n.leadAs("good-"+kind.String(), cfg)
		for _, p := range []*Partition{bad, good} {
			mustProduce(t, p, spec{})
		}
		disk.set(func(op vfs.Op) error {
			if op.Kind == kind && bytes.Contains([]byte(op.Name), []byte("/bad-")) {
				return syscall.EIO
			}
			return nil
		})
		for range 20 {
			_, err := produce(t, bad, spec{})
			if err = errors.Join(err, bad.Sync()); err != nil && !isCode(err, kerr.KafkaStorageError) {
				t.Errorf("%s: %v", kind, err)
			}
			mustProduce(t, good, spec{})
		}
		if err := good.Sync(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		disk.set(nil)
	}
}
