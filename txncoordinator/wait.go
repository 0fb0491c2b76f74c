package txncoordinator

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
)

// waiter is a caller that waits for a transaction to be complete.
type waiter struct {
	done  coordinator.Reply // the answer then, unless again is set
	again coordinator.Step  // what the caller asked for, to be decided then
	limit *timer
}

// retryLater lets the caller of an operation that met a completing transaction wait for the completion, at most for
// limit; then it gets CONCURRENT_TRANSACTIONS. again is the same operation.
func (m *Machine) retryLater(t *txn, to coordinator.Token, now time.Time, limit time.Duration, again coordinator.Step) coordinator.Output {
	late := coordinator.Reply{To: to, Err: kerr.ConcurrentTransactions}
	if limit <= 0 {
		return coordinator.Output{Replies: []coordinator.Reply{late}}
	}
	m.await(t, &waiter{again: again}, late, now, limit)
	return coordinator.Output{}
}

// await parks a caller until t is complete. When limit has passed before, it gets late.
func (m *Machine) await(t *txn, w *waiter, late coordinator.Reply, now time.Time, limit time.Duration) {
	w.limit = m.timers.add(now.Add(limit), func(time.Time) coordinator.Output {
		t.waiters = slices.DeleteFunc(t.waiters, func(other *waiter) bool { return other == w })
		return coordinator.Output{Replies: []coordinator.Reply{late}}
	})
	t.waiters = append(t.waiters, w)
}

// wake answers those who waited for t, which is complete now.
func (m *Machine) wake(t *txn) coordinator.Output {
	var out coordinator.Output
	for _, w := range t.waiters {
		m.timers.cancel(w.limit)
		if w.again != nil {
			out.Next = append(out.Next, w.again)
		} else {
			out.Replies = append(out.Replies, w.done)
		}
	}
	t.waiters = nil
	return out
}
