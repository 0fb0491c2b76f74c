package coordinator_test

import (
	"context"
	"errors"
	"fmt"
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
)

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

// TestDeposedLogEndsShard: a partition that is no longer led commits nothing, so whoever waits for that is told at once, before
// anybody unloads the shard.
func TestDeposedLogEndsShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.log.Hold()
		write := b.shard().Do(put("a", "1"))
		synctest.Wait()
		if write.Ready() {
			t.Error("answered")
		}
		b.log.Depose()
		if v, err := write.Await(t.Context()); !errors.Is(err, kerr.NotCoordinator) {
			t.Error(v, err)
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
