package txncoordinator

import (
	"time"

	"oncelog/coordinator"
)

// schedule sets the timer for what may be due next for t: the timeout of its open transaction, or its expiry. Both are
// looked for in fixed intervals, as in Kafka. A timer that is set too early is only looked at in vain.
func (m *Machine) schedule(t *txn) { m.scheduleAfter(t, m.base) }

// scheduleAfter does so for the intervals after a time.
func (m *Machine) scheduleAfter(t *txn, after time.Time) {
	if m.base.IsZero() {
		return // still loading; Recover does it
	}
	var due int64 // milliseconds since 1970
	var interval time.Duration
	s := m.o.Settings()
	switch t.state {
	case Ongoing:
		if t.timeoutMillis == noTimeout {
			return
		}
		due, interval = t.startMillis+int64(t.timeoutMillis)+1, s.TimeoutInterval
	case Empty, CompleteCommit, CompleteAbort:
		due, interval = t.updateMillis+s.Expiration.Milliseconds(), s.ExpirationInterval
	default:
		return
	}
	interval = max(interval, time.Millisecond)
	target := max(time.UnixMilli(due).Sub(m.base), after.Sub(m.base)+1, 1)
	at := m.base.Add((target + interval - 1) / interval * interval)
	if t.scan != nil && t.scan.index >= 0 {
		if !at.Before(t.scan.at) {
			return
		}
		m.timers.cancel(t.scan)
	}
	t.scan = m.timers.add(at, func(now time.Time) coordinator.Output { return m.look(t, now) })
}

// look does what is due for t: it aborts a transaction that timed out, and forgets an id that was not used for long.
func (m *Machine) look(t *txn, now time.Time) coordinator.Output {
	m.scheduleAfter(t, now) // also for the next try, should this one fail
	switch {
	case t.timedOut(now):
		out, err := m.fence(t, now)
		if err != nil {
			return coordinator.Output{} // no producer id in reserve; next time
		}
		return out
	case m.expired(t, now):
		var out coordinator.Output
		out.Batch.Records = []coordinator.KeyValue{{Key: encodeKey(t.id)}}
		return out
	}
	return coordinator.Output{}
}

func (t *txn) timedOut(now time.Time) bool {
	return t.state == Ongoing && t.timeoutMillis != noTimeout && t.startMillis+int64(t.timeoutMillis) < now.UnixMilli()
}

func (m *Machine) expired(t *txn, now time.Time) bool {
	return t.state != Ongoing && !t.completing() &&
		t.updateMillis <= now.UnixMilli()-m.o.Settings().Expiration.Milliseconds()
}
