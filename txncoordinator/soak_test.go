package txncoordinator

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
)

// ask runs one operation to its answer.
func (w *world) ask(op func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output) (Producer, error) {
	v, err := w.shard().Do(op).Await(context.Background())
	p, _ := v.(Producer)
	return p, err
}

// TestEpochsOfOneProducer runs more transactions on one id than a producer id has epochs, with the coordinator killed now and
// then at any point of one: no pair of producer id and epoch is handed out twice, they advance, and decisions stand.
func TestEpochsOfOneProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.host.Close() }()
		r := rand.New(rand.NewPCG(4, 2))
		p, err := w.ask(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.InitProducerID(now, to, InitProducerID{TransactionalID: "a", TimeoutMillis: 60000, Expected: NoProducer})
		})
		if err != nil {
			t.Fatal(err)
		}
		rotations := 0
		for i := range 33_000 {
			next := w.transaction(t, p, r.IntN(2) == 0, i%9000 == 7)
			switch {
			case next.ID == p.ID && next.Epoch == p.Epoch+1:
			case next.ID > p.ID && next.Epoch == 0 && p.Epoch == lastClientEpoch:
				rotations++
			default:
				t.Fatalf("%v after %v", next, p)
			}
			p = next
		}
		if rotations != 1 {
			t.Errorf("%d rotations", rotations)
		}
		w.checkFold()
	})
}

// transaction runs one, repeating what got lost in restarts, and gives the producer of the next.
func (w *world) transaction(t *testing.T, p Producer, commit, restarts bool) (next Producer) {
	add := func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.AddPartitions(now, to, AddPartitions{TransactionalID: "a", Producer: p, Partitions: Partitions{{"t", []int32{0, 1}}}, ClientVersion: 2})
	}
	end := func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.EndTxn(now, to, EndTxn{TransactionalID: "a", Producer: p, Commit: commit, ClientVersion: 2})
	}
	if _, err := w.ask(add); err != nil {
		t.Fatal(p, err)
	}
	if restarts {
		w.restart()
	}
	next, err := w.ask(end)
	if err != nil {
		t.Fatal(p, err)
	}
	if restarts {
		w.restart()
		if _, err := w.ask(end); !errors.Is(err, kerr.ConcurrentTransactions) {
			t.Fatal(p, err)
		}
	}
	if len(w.owed) != 1 || w.owed[0].Commit != commit || w.owed[0].Producer != (Producer{p.ID, p.Epoch + 1}) {
		t.Fatalf("%v: markers %+v", p, w.owed)
	}
	m := w.owed[0]
	w.owed = nil
	w.shard().Tell(func(machine *Machine, now time.Time) coordinator.Output { return machine.Marked(now, m, m.Partitions) })
	if restarts {
		w.restart()
		if again, err := w.ask(end); err != nil || again != next {
			t.Fatal(p, next, again, err)
		}
	}
	return next
}
