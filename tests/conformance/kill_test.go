package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

// An idempotent producer goes on through kills of the broker: each record is there once, in order.
func TestIdempotentProducerSurvivesKills(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 1, nil)
	cl := newClient(t, b)
	ctx := within(t, 60*time.Second)
	const rounds, perRound = 5, 400
	for round := range rounds {
		failed := make(chan error, perRound)
		for i := range perRound {
			cl.Produce(ctx, record(topic, 0, fmt.Sprint(round*perRound+i)), func(_ *kgo.Record, err error) {
				if err != nil {
					failed <- err
				}
			})
		}
		b.Kill()
		b.Restart()
		if err := cl.Flush(ctx); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if len(failed) > 0 {
			t.Fatalf("round %d: %v", round, <-failed)
		}
	}
	wantValues(t, "all", uncommitted(t, b, topic)[0], numbered("", rounds*perRound)...)
}

// A commit that was acknowledged is there after a kill, whole; a transaction that was open at the kill is not.
func TestCommitSurvivesAKill(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	topic, id := newTopic(t, b, 4, nil), name(t, "id")
	ctx := within(t, 60*time.Second)
	var want []string
	for round := range 4 {
		cl := newClient(t, b, kgo.TransactionalID(id))
		v := fmt.Sprint("committed ", round)
		transact(t, ctx, cl, kgo.TryCommit, func() { produceEach(t, ctx, cl, topic, v) })
		want = append(want, v)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produceEach(t, ctx, cl, topic, fmt.Sprint("open ", round))
		if round%2 == 0 {
			b.Kill()
		} else {
			b.Stop()
		}
		b.Restart()
		cl.Close()
	}
	// The next of that id ends what is still open.
	heir := newClient(t, b, kgo.TransactionalID(id))
	transact(t, ctx, heir, kgo.TryCommit, func() { produceEach(t, ctx, heir, topic, "last") })
	got := committed(t, b, topic)
	for p := range int32(4) {
		wantValues(t, fmt.Sprintf("committed of %d", p), got[p], append(slices.Clone(want), "last")...)
	}
}

func produceEach(t *testing.T, ctx context.Context, cl *kgo.Client, topic, value string) {
	t.Helper()
	for p := range int32(4) {
		mustProduce(t, ctx, cl, record(topic, p, value))
	}
}

// A consume-transform-produce loop that meets a kill makes each copy once.
func TestTransactionalCopySurvivesAKill(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	in, out, group, id := newTopic(t, b, 1, nil), newTopic(t, b, 1, nil), name(t, "group"), name(t, "id")
	ctx := within(t, 90*time.Second)
	const n = 200
	producer := newClient(t, b)
	for _, v := range numbered("", n) {
		mustProduce(t, ctx, producer, record(in, 0, v))
	}
	for round := 0; ; round++ {
		copied := copySome(t, ctx, b, in, out, group, id, func(transactions int) {
			if round < 3 && transactions == 2 {
				b.Kill()
				b.Restart()
			}
		})
		if copied {
			break
		}
	}
	wantValues(t, "out", committed(t, b, out)[0], numbered("", n)...)
}

// copySome copies until the group has reached the end of in, or an error ends its session. before is called with the
// number of transactions that are committed, in the middle of the next.
func copySome(t *testing.T, ctx context.Context, b *brokertest.Broker, in, out, group, id string, before func(int)) (done bool) {
	t.Helper()
	s := newSession(t, b, in, group, id)
	defer s.Close()
	for transactions := 0; ctx.Err() == nil; transactions++ {
		if err := s.Begin(); err != nil {
			return false
		}
		var last int64 = -1
		written := kgo.AbortingFirstErrPromise(s.Client())
		for last < 0 && ctx.Err() == nil {
			for _, r := range s.PollRecords(ctx, 40).Records() {
				s.Produce(ctx, record(out, 0, string(r.Value)), written.Promise())
				last = r.Offset
			}
		}
		before(transactions)
		if ok, err := s.End(ctx, written.Err() == nil); err != nil || !ok {
			return false
		}
		if last == 199 {
			return true
		}
	}
	t.Fatal("the copy did not end in time")
	return false
}
