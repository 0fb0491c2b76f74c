package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/controlmarkers"
	"oncelog/coordinator"
	"oncelog/coordinator/coordinatortest"
	"oncelog/protocol"
)

// ledger is a machine for tests: a map, whose values go to effects and whose readers can be parked.
type ledger struct {
	values   map[string]string
	pending  map[int64]map[string]string // by producer: what its transaction will put
	waiters  map[string][]coordinator.Token
	deadline time.Time
	ticks    int
	onTick   func(now time.Time) coordinator.Output
}

func newLedger(_, _ int32) *ledger {
	return &ledger{values: map[string]string{}, pending: map[int64]map[string]string{}, waiters: map[string][]coordinator.Token{}}
}

func (m *ledger) Replay(_ int64, r coordinator.Record) error {
	switch {
	case r.IsMarker:
		if r.Marker.Commit {
			maps.Copy(m.values, m.pending[r.ProducerID])
		}
		delete(m.pending, r.ProducerID)
	case r.Transactional:
		if m.pending[r.ProducerID] == nil {
			m.pending[r.ProducerID] = map[string]string{}
		}
		m.pending[r.ProducerID][string(r.Key)] = string(r.Value)
	case string(r.Key) == "poison":
		return errors.New("poison")
	case r.Value == nil:
		delete(m.values, string(r.Key))
	default:
		m.values[string(r.Key)] = string(r.Value)
	}
	return nil
}

func (m *ledger) Recover(time.Time) coordinator.Output {
	var out coordinator.Output
	for k, v := range m.values {
		out.Effects = append(out.Effects, k+"="+v)
	}
	return out
}

func (m *ledger) Deadline() time.Time { return m.deadline }

func (m *ledger) Tick(now time.Time) coordinator.Output {
	m.ticks++
	m.deadline = time.Time{}
	if m.onTick == nil {
		return coordinator.Output{}
	}
	return m.onTick(now)
}

type (
	host  = coordinator.Host[*ledger]
	shard = coordinator.Shard[*ledger]
	op    = func(m *ledger, now time.Time, to coordinator.Token) coordinator.Output
)

func pairs(kv ...string) []coordinator.KeyValue {
	var records []coordinator.KeyValue
	for i := 0; i < len(kv); i += 2 {
		records = append(records, coordinator.KeyValue{Key: []byte(kv[i]), Value: []byte(kv[i+1])})
	}
	return records
}

// put appends, gives an effect, and answers with what was there before.
func put(k, v string) op {
	return func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		out := to.Reply(m.values[k])
		out.Batch.Records = pairs(k, v)
		out.Effects = []any{k + "=" + v}
		return out
	}
}

func get(k string) op {
	return func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output { return to.Reply(m.values[k]) }
}

// bench is one host with one shard on one log.
type bench struct {
	t    *testing.T
	host *host
	log  *coordinatortest.Log

	mu      sync.Mutex
	effects []string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, log: &coordinatortest.Log{}}
	b.open()
	b.load(1)
	return b
}

func (b *bench) open() {
	b.host = coordinator.NewHost(coordinator.Options[*ledger]{
		Topic: "test",
		New:   newLedger,
		Effects: func(_ *shard, effects []any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, e := range effects {
				b.effects = append(b.effects, e.(string))
			}
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	b.t.Cleanup(b.host.Close)
}

func (b *bench) load(epoch int32) {
	b.host.Load(0, epoch, b.log)
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if err := b.host.AwaitLoaded(ctx, 0); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) shard() *shard {
	b.t.Helper()
	s, err := b.host.Get(0)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) do(o op) (any, error) {
	b.t.Helper()
	return b.shard().Do(o).Await(b.t.Context())
}

func (b *bench) mustDo(o op) any {
	b.t.Helper()
	v, err := b.do(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) takeEffects() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.Join(b.effects, " ")
	b.effects = nil
	return text
}

// values reads the whole machine.
func (b *bench) values() map[string]string {
	b.t.Helper()
	return b.mustDo(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		return to.Reply(maps.Clone(m.values))
	}).(map[string]string)
}

func fold(t *testing.T, log coordinator.Log) map[string]string {
	t.Helper()
	b := &bench{t: t}
	b.open()
	h := b.host
	defer h.Close()
	h.Load(7, 1, log)
	if err := h.AwaitLoaded(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	s, err := h.Get(7)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Do(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		return to.Reply(maps.Clone(m.values))
	}).Await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]string)
}

// TestStateIsFold runs random plain, transactional and failing operations and markers from several callers, and compares
// the machine with one that loads the log.
func TestStateIsFold(t *testing.T) {
	b := newBench(t)
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for i := range 200 {
				k, v := fmt.Sprint("k", r.IntN(8)), fmt.Sprint(c, ".", i)
				o := put(k, v)
				switch r.IntN(4) {
				case 0:
					o = func(_ *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
						out := to.Reply(nil)
						out.Batch = coordinator.Batch{Records: pairs(k, v, k+"'", v), Transactional: true, ProducerID: int64(c), ProducerEpoch: 3}
						return out
					}
				case 1:
					commit := r.IntN(2) == 0
					o = func(_ *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
						out := to.Reply(nil)
						out.Batch = coordinator.Batch{Control: true, Marker: controlmarkers.Marker{Commit: commit}, ProducerID: int64(c), ProducerEpoch: 3}
						return out
					}
				case 2:
					if r.IntN(4) == 0 {
						b.log.Fail(kerr.NotEnoughReplicas)
					}
					o = func(m *ledger, now time.Time, to coordinator.Token) coordinator.Output {
						b.log.Fail(nil)
						out := put(k, v)(m, now, to)
						out.Batch.Records = append(out.Batch.Records, coordinator.KeyValue{Key: []byte(k + "'")})
						return out
					}
				}
				if _, err := b.shard().Do(o).Await(t.Context()); err != nil && !errors.Is(err, kerr.CoordinatorNotAvailable) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	b.log.Fail(nil)
	if got, want := b.values(), fold(t, b.log); !maps.Equal(got, want) {
		t.Errorf("machine %v\nfold    %v", got, want)
	}
}

// TestFailedAppendChangesNothing: the state stays, the caller gets Kafka's translation of the error, no effect leaves, and
// a Failed function decides instead where there is one. Next does not run.
func TestFailedAppendChangesNothing(t *testing.T) {
	b := newBench(t)
	b.mustDo(put("a", "1"))
	b.takeEffects()
	for _, c := range []struct{ cause, want error }{
		{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable},
		{kerr.UnknownTopicOrPartition, kerr.CoordinatorNotAvailable},
		{kerr.NotLeaderForPartition, kerr.NotCoordinator},
		{kerr.KafkaStorageError, kerr.NotCoordinator},
		{kerr.MessageTooLarge, kerr.UnknownServerError},
		{kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch},
	} {
		b.log.Fail(fmt.Errorf("wrapped: %w", c.cause))
		_, err := b.do(put("a", "2"))
		if known, _ := errors.AsType[*kerr.Error](err); known != c.want || !errors.Is(err, c.cause) {
			t.Errorf("%v became %v", c.cause, err)
		}
	}
	ran := false
	v, err := b.do(func(_ *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		out := to.Reply("done")
		out.Batch.Records = pairs("a", "3")
		out.Next = []coordinator.Step{func(time.Time) coordinator.Output { ran = true; return coordinator.Output{} }}
		out.Failed = func(error) []coordinator.Reply { return []coordinator.Reply{{To: to, Value: "instead"}} }
		return out
	})
	if v != "instead" || err != nil || ran {
		t.Errorf("%v, %v, next ran: %v", v, err, ran)
	}
	b.log.Fail(nil)
	if v := b.mustDo(get("a")); v != "1" {
		t.Errorf("a is %v", v)
	}
	if e := b.takeEffects(); e != "" {
		t.Errorf("effects %s", e)
	}
}

// TestReplyWaitsForCommit: neither the reply nor the effect of a write leaves before it is committed, nor does the reply of a
// read that could see it; a read before it is not held up.
func TestReplyWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.mustDo(put("a", "1"))
		b.takeEffects()
		b.log.Hold()
		before := b.shard().Do(get("a"))
		write := b.shard().Do(put("a", "2"))
		read := b.shard().Do(get("a"))
		synctest.Wait()
		if !before.Ready() || write.Ready() || read.Ready() {
			t.Errorf("ready: %v %v %v", before.Ready(), write.Ready(), read.Ready())
		}
		if e := b.takeEffects(); e != "" {
			t.Errorf("effect %s left early", e)
		}
		b.log.Commit()
		synctest.Wait()
		if v, err := read.Await(t.Context()); v != "2" || err != nil || !write.Ready() {
			t.Errorf("%v %v, write ready %v", v, err, write.Ready())
		}
		if e := b.takeEffects(); e != "a=2" {
			t.Errorf("effects %q", e)
		}
		b.host.Close()
	})
}

// TestLostEpochFailsParked: whoever waits, for commit, for another caller, or in the queue, gets NOT_COORDINATOR; so does
// whoever comes later. What the next epoch loads is what the log has.
func TestLostEpochFailsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.mustDo(put("a", "1"))
		old := b.shard()
		parked := old.Do(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
			m.waiters["x"] = append(m.waiters["x"], to)
			return coordinator.Output{}
		})
		b.log.Hold()
		uncommitted := old.Do(put("a", "2"))
		lost := b.log
		b.log = lost.Next(false)
		b.host.Load(0, 2, b.log)
		synctest.Wait()
		for _, p := range []coordinator.Pending{parked, uncommitted, old.Do(get("a"))} {
			if v, err := p.Await(t.Context()); !errors.Is(err, kerr.NotCoordinator) {
				t.Errorf("%v, %v", v, err)
			}
		}
		if !old.Ended() {
			t.Error("old shard goes on")
		}
		lost.Commit()
		b.takeEffects()
		if v := b.mustDo(get("a")); v != "1" {
			t.Errorf("a is %v", v)
		}
		b.host.Load(0, 1, lost) // a late call for the old epoch
		b.host.Unload(0, 1)
		if v := b.mustDo(get("a")); v != "1" {
			t.Errorf("a is %v", v)
		}
		b.host.Unload(0, 2)
		if _, err := b.host.Get(0); !errors.Is(err, kerr.NotCoordinator) {
			t.Error(err)
		}
		synctest.Wait()
		if e := b.takeEffects(); e != "" {
			t.Errorf("effects of the lost epoch: %s", e)
		}
		b.host.Close()
	})
}

// TestReplyToEarlierCaller: an operation answers one that was parked.
func TestReplyToEarlierCaller(t *testing.T) {
	b := newBench(t)
	parked := b.shard().Do(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		m.waiters["x"] = append(m.waiters["x"], to)
		return coordinator.Output{}
	})
	if parked.Ready() {
		t.Fatal("answered")
	}
	b.mustDo(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		out := to.Reply(nil)
		out.Replies = append(out.Replies, coordinator.Reply{To: m.waiters["x"][0], Value: "at last"}, coordinator.Reply{To: m.waiters["x"][0], Value: "twice"}, coordinator.Reply{})
		return out
	})
	if v, err := parked.Await(t.Context()); v != "at last" || err != nil {
		t.Error(v, err)
	}
}

// TestNextRunsInOrder: steps see what was replayed, before any operation that waits in the queue.
func TestNextRunsInOrder(t *testing.T) {
	b := newBench(t)
	b.mustDo(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		later := b.shard().Do(put("a", "last")) // waits in the queue
		out := to.Reply(nil)
		out.Batch.Records = pairs("a", "0")
		step := func(n string) coordinator.Step {
			return func(time.Time) coordinator.Output {
				return coordinator.Output{Batch: coordinator.Batch{Records: pairs("a", m.values["a"]+n)}}
			}
		}
		out.Next = []coordinator.Step{step("1"), step("2")}
		if later.Ready() {
			t.Error("overtaken")
		}
		return out
	})
	var seen []string
	for batch, err := range b.log.Batches(0) {
		if err != nil {
			t.Fatal(err)
		}
		records := batch.Records(1 << 10)
		for records.Next() {
			seen = append(seen, string(records.Record().Value))
		}
		records.Close()
	}
	if got := strings.Join(seen, " "); !strings.HasPrefix(got, "0 01 012") {
		t.Errorf("log has %s", got)
	}
}

// TestLoadAnswersInProgress: 14 while it loads; afterwards the effects that the state owes come first.
func TestLoadAnswersInProgress(t *testing.T) {
	b := newBench(t)
	b.mustDo(put("a", "1"))
	b.takeEffects()
	b.host.Unload(0, 1)
	slow := &slowLog{Log: b.log.Next(true), open: make(chan struct{})}
	b.host.Load(0, 2, slow)
	if _, err := b.host.Get(0); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Error(err)
	}
	if _, more := b.host.Shards(); !more {
		t.Error("no shard is loading")
	}
	close(slow.open)
	if err := b.host.AwaitLoaded(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if v := b.mustDo(get("a")); v != "1" {
		t.Error(v)
	}
	if e := b.takeEffects(); e != "a=1" {
		t.Errorf("effects %q", e)
	}
	if loaded, more := b.host.Shards(); len(loaded) != 1 || more {
		t.Error(loaded, more)
	}
}

// TestRecoverWaitsForCommit: effects of a loaded state leave when all of the loaded log is committed.
func TestRecoverWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.log.Hold()
		b.shard().Do(put("a", "1"))
		b.host.Unload(0, 1)
		b.load(2) // the log's end is above its high watermark still
		synctest.Wait()
		if e := b.takeEffects(); e != "" {
			t.Errorf("effects %q", e)
		}
		b.log.Commit()
		synctest.Wait()
		if e := b.takeEffects(); e != "a=1" {
			t.Errorf("effects %q", e)
		}
		b.host.Close()
	})
}

// TestBadRecordFailsLoad: nobody is served from half a state.
func TestBadRecordFailsLoad(t *testing.T) {
	b := newBench(t)
	b.host.Unload(0, 1)
	b.log.Put(encoded(t, "a", "1"))
	b.log.Put(encoded(t, "poison", "1"))
	b.host.Load(0, 2, b.log)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.host.AwaitLoaded(ctx, 0); err == nil {
		t.Error("loaded")
	}
	if _, err := b.host.Get(0); !errors.Is(err, kerr.NotCoordinator) {
		t.Error(err)
	}
}

// TestPanicEndsShard: the caller and those after it get NOT_COORDINATOR, other shards go on.
func TestPanicEndsShard(t *testing.T) {
	b := newBench(t)
	other := &coordinatortest.Log{}
	b.host.Load(1, 1, other)
	if err := b.host.AwaitLoaded(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_, err := b.do(func(*ledger, time.Time, coordinator.Token) coordinator.Output { panic("bug") })
	if !errors.Is(err, kerr.NotCoordinator) {
		t.Error(err)
	}
	if _, err := b.do(get("a")); !errors.Is(err, kerr.NotCoordinator) {
		t.Error(err)
	}
	s, err := b.host.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(put("a", "1")).Await(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTimer: Tick comes at the deadline, backs off while its append fails, and never without a deadline.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		start := time.Now()
		var at []time.Duration
		b.mustDo(func(m *ledger, now time.Time, to coordinator.Token) coordinator.Output {
			m.deadline = now.Add(time.Minute)
			m.onTick = func(now time.Time) coordinator.Output {
				at = append(at, now.Sub(start))
				m.deadline = now // until it worked
				return coordinator.Output{
					Batch: coordinator.Batch{Records: pairs("t", "1")},
					Next:  []coordinator.Step{func(time.Time) coordinator.Output { m.deadline = time.Time{}; return coordinator.Output{} }},
				}
			}
			return to.Reply(nil)
		})
		b.log.Fail(kerr.NotEnoughReplicas)
		<-time.After(time.Minute + 350*time.Millisecond)
		b.log.Fail(nil)
		<-time.After(time.Hour)
		if v := b.mustDo(get("t")); v != "1" {
			t.Error(v)
		}
		want := []time.Duration{time.Minute, time.Minute + 100*time.Millisecond, time.Minute + 300*time.Millisecond, time.Minute + 700*time.Millisecond}
		if fmt.Sprint(at) != fmt.Sprint(want) {
			t.Errorf("ticks at %v, want %v", at, want)
		}
		b.host.Close()
	})
}

// TestOneAtATime: many callers at once, each operation alone with the machine, in the order of each caller.
func TestOneAtATime(t *testing.T) {
	b := newBench(t)
	var callers sync.WaitGroup
	count := 0
	for range 8 {
		callers.Go(func() {
			last := -1
			var open []coordinator.Pending
			for i := range 100 {
				open = append(open, b.shard().Do(func(_ *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
					count++ // the race detector watches
					if i != last+1 {
						t.Errorf("%d after %d", i, last)
					}
					last = i
					return to.Reply(nil)
				}))
			}
			for _, p := range open {
				if _, err := p.Await(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if count != 800 {
		t.Error(count)
	}
}

// TestAwaitGivesUp: the context ends the wait, not the operation.
func TestAwaitGivesUp(t *testing.T) {
	b := newBench(t)
	b.log.Hold()
	p := b.shard().Do(put("a", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Await(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.log.Commit()
	if v := b.mustDo(get("a")); v != "1" {
		t.Error(v)
	}
}

// slowLog lets nobody read before it is opened.
type slowLog struct {
	coordinator.Log
	open chan struct{}
}

func (l *slowLog) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	<-l.open
	return l.Log.Batches(from)
}

// encoded is a plain batch of one record.
func encoded(t *testing.T, k, v string) protocol.Batch {
	t.Helper()
	b, err := protocol.AppendBatch(nil, protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]protocol.Record{{Key: []byte(k), Value: []byte(v)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
