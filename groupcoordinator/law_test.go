package groupcoordinator

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// TestStateIsTheFoldOfTheLog runs random operations, with failing appends, restarts and time in between. After each of
// them the harness compares the hard state with that of a fresh machine that replays the log, and checks the
// invariants. In the end everybody has been answered.
func TestStateIsTheFoldOfTheLog(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(20) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) { randomRun(t, rand.New(rand.NewPCG(seed+i, 0)), 400) })
	}
}

func randomRun(t *testing.T, r *rand.Rand, steps int) {
	h := newHarness(t)
	h.command("settings", args{"delay": fmt.Sprint(r.IntN(2) * 3000), "retention": "60000", "check": "5000", "max-size": "4"})
	known := []string{"", "ghost"}
	for range steps {
		a := args{"g": fmt.Sprintf("g%d", r.IntN(3)), "member": known[r.IntN(len(known))], "gen": fmt.Sprint(r.IntN(8) - 1)}
		if g := h.m.groups[a["g"]]; g != nil && r.IntN(4) > 0 {
			a["gen"] = fmt.Sprint(g.generation)
			if len(g.order) > 0 {
				n := g.order[r.IntN(len(g.order))]
				a["member"] = n.id
				if n.instanceID != nil {
					a["instance"] = *n.instanceID
				}
			}
		}
		if r.IntN(30) == 0 {
			h.failing = true
		}
		h.command(randomCommand(r, a), a)
		for word := range strings.FieldsSeq(h.out.String()) {
			if strings.Contains(word, "-u") && !strings.ContainsAny(word, "[]()/") && len(known) < 40 {
				known = append(known, strings.Trim(word, `"`))
			}
		}
		h.out.Reset()
	}
	h.failing = false
	h.advance(time.Hour)
	if len(h.tokens) > 0 {
		t.Errorf("never answered: %v\n%s", h.tokens, h.soft())
	}
}

// randomCommand picks a command and completes its arguments.
func randomCommand(r *rand.Rand, a args) string {
	a["o"] = fmt.Sprintf("%c/%d:%d,%c/%d:%d", 't'+rune(r.IntN(2)), r.IntN(2), r.IntN(100), 't'+rune(r.IntN(2)), r.IntN(2), r.IntN(100))
	a["pid"] = fmt.Sprint(r.IntN(3))
	switch r.IntN(16) {
	case 0, 1, 2, 3:
		a["protocols"] = []string{"range:t", "range:t,rr:u", "rr:t+u", "range:!x"}[r.IntN(4)]
		a["session"], a["rebalance"] = "10000", []string{"2000", "20000"}[r.IntN(2)]
		a["v"] = fmt.Sprint(r.IntN(10))
		if r.IntN(3) == 0 {
			a["member"] = ""
			delete(a, "instance")
		}
		if r.IntN(6) == 0 {
			a["instance"] = fmt.Sprintf("i%d", r.IntN(2))
			if r.IntN(2) == 0 {
				a["member"] = ""
			}
		}
		return "join"
	case 4, 5, 6:
		a["assign"] = a["member"] + ":x"
		return "sync"
	case 7:
		a["by"] = []string{"1s", "3s", "11s"}[r.IntN(3)]
		return "advance"
	case 8:
		return "commit"
	case 9:
		return "txn-commit"
	case 10:
		if r.IntN(2) == 0 {
			a["abort"] = ""
		}
		return "marker"
	case 11:
		if r.IntN(5) == 0 {
			return "restart"
		}
		return "heartbeat"
	case 12:
		return "leave"
	case 13:
		return []string{"delete-group", "offset-delete"}[r.IntN(2)]
	case 14:
		a["topic"] = "u"
		return []string{"delete-topic", "describe", "list"}[r.IntN(3)]
	default:
		return "fetch"
	}
}

// TestLongDeletionsAreCutIntoBatches deletes more offsets than fit into one batch; the answer comes with the last.
func TestLongDeletionsAreCutIntoBatches(t *testing.T) {
	h := newHarness(t)
	const offsets = 12000
	group := strings.Repeat("g", 100)
	g := h.m.addGroup(group)
	for p := range int32(offsets) {
		g.putOffset("topic", p, commit{})
	}
	to := h.token("delete")
	out := h.m.DeleteGroup(to, group)
	batches, records := 0, 0
	for {
		batches++
		records += len(out.Batch.Records)
		if size := sizeOf(out.Batch.Records); size > batchBytesMax+1000 {
			t.Errorf("batch of %d bytes", size)
		}
		if len(out.Next) == 0 {
			break
		}
		if len(out.Replies) > 0 {
			t.Error("answered before the last batch")
		}
		if failed := out.Failed(errDisk); len(failed) != 1 || failed[0].To != to {
			t.Errorf("a failed batch answers %v", failed)
		}
		out = out.Next[0](h.now)
	}
	if records != offsets+1 || batches < 3 || len(out.Replies) != 1 {
		t.Errorf("%d records in %d batches, %d answers", records, batches, len(out.Replies))
	}
}

// TestLongExpiryGoesOnAtOnce expires more offsets than fit into one batch; the rest follows with the next Tick.
func TestLongExpiryGoesOnAtOnce(t *testing.T) {
	h := newHarness(t)
	const offsets = 12000
	group := strings.Repeat("g", 100)
	for p := range int32(offsets) {
		h.m.replayForTest(t, group, p)
	}
	h.m.armSweep(h.now)
	ticks := 0
	for h.now = h.m.Deadline(); len(h.m.groups) > 0 && ticks < 10; ticks++ {
		if due := h.m.Deadline(); due.IsZero() || due.After(h.now) {
			h.now = due
		}
		out := h.m.Tick(h.now)
		if size := sizeOf(out.Batch.Records); size > batchBytesMax+1000 {
			t.Errorf("batch of %d bytes", size)
		}
		for _, kv := range out.Batch.Records {
			if err := h.m.Replay(offsets, coordinator.Record{Key: kv.Key}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(h.m.groups) > 0 || ticks > 5 {
		t.Errorf("%d groups after %d ticks", len(h.m.groups), ticks)
	}
}

func (m *Machine) replayForTest(t *testing.T, group string, p int32) {
	_, kv := appendCommit(nil, group, "topic", p, &commit{expireTime: 1})
	if err := m.Replay(int64(p), coordinator.Record{Key: kv.Key, Value: kv.Value}); err != nil {
		t.Fatal(err)
	}
}

// TestTimersFireInOrder compares the heap with a plain list.
func TestTimersFireInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h timerHeap
	timers := make([]timer, 50)
	for now := int64(1); now < 3000; now++ {
		tm := &timers[r.IntN(len(timers))]
		switch r.IntN(4) {
		case 0, 1:
			h.start(tm, now+int64(r.IntN(200)))
		case 2:
			h.stop(tm)
		}
		for d := h.due(now); d != nil; d = h.due(now) {
			if d.running() {
				t.Fatal("fired and still running")
			}
		}
		for i := range timers {
			if timers[i].running() && timers[i].at <= now {
				t.Fatalf("missed %d at %d", timers[i].at, now)
			}
			if timers[i].running() && h.next().UnixMilli() > timers[i].at {
				t.Fatalf("next is %d, one is due at %d", h.next().UnixMilli(), timers[i].at)
			}
		}
	}
}

// hot is a machine with one stable group of one member, for the paths that are taken all the time.
func hot(tb testing.TB) (*harness, *kmsg.HeartbeatRequest, *kmsg.OffsetCommitRequest) {
	h := newHarness(tb)
	h.command("settings", args{"delay": "0"})
	h.command("join", args{"v": "3"})
	h.advance(0)
	h.command("sync", args{"member": "c-u1"})
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "g", "c-u1", 1
	return h, beat, commitOf("g", args{"member": "c-u1", "gen": "1", "o": "t/0:1,t/1:2,u/0:3"})
}

// TestHotPathAllocations keeps heartbeats and commits from becoming wasteful.
func TestHotPathAllocations(t *testing.T) {
	h, beat, commit := hot(t)
	to := h.token("x")
	if n := testing.AllocsPerRun(100, func() { h.m.Heartbeat(h.now, to, beat) }); n > 2 {
		t.Errorf("%v allocations per heartbeat", n)
	}
	if n := testing.AllocsPerRun(100, func() { commitOnce(t, h, to, commit) }); n > 12 {
		t.Errorf("%v allocations per commit of three topics", n)
	}
}

func commitOnce(tb testing.TB, h *harness, to coordinator.Token, r *kmsg.OffsetCommitRequest) {
	out := h.m.OffsetCommit(h.now, to, r)
	for _, kv := range out.Batch.Records {
		if err := h.m.Replay(1, coordinator.Record{Key: kv.Key, Value: kv.Value, ProducerID: -1}); err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	h, beat, _ := hot(b)
	to := h.token("x")
	b.ReportAllocs()
	for b.Loop() {
		h.m.Heartbeat(h.now, to, beat)
	}
}

func BenchmarkOffsetCommit(b *testing.B) {
	h, _, commit := hot(b)
	to := h.token("x")
	b.ReportAllocs()
	for b.Loop() {
		commitOnce(b, h, to, commit)
	}
}
