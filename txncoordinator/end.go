package txncoordinator

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
)

// errRepeated says that an EndTxn was done already: its answer got lost, and is given again.
var errRepeated = errors.New("transaction has ended that way already")

// judgeEnd decides about an EndTxn up to v4, which leaves the epoch as it is. nil means go on.
func (t *txn) judgeEnd(r EndTxn) error {
	switch {
	case t.producerID != r.Producer.ID:
		return kerr.InvalidProducerIDMapping
	case t.epoch != r.Producer.Epoch:
		return kerr.ProducerFenced
	case t.completing():
		return kerr.ConcurrentTransactions
	case t.state == Ongoing:
		return nil
	case t.endedBy(r.Commit):
		return errRepeated
	}
	return kerr.InvalidTxnState
}

// judgeEndBumping decides about an EndTxn from v5 on, which raises the epoch (KIP-890): a repeated one names the epoch before.
func (t *txn) judgeEndBumping(r EndTxn) error {
	if t.completing() {
		return kerr.ConcurrentTransactions
	}
	current := t.epoch == r.Producer.Epoch
	overflowed := t.previousProducerID == r.Producer.ID && r.Producer.Epoch == lastClientEpoch && t.epoch == 0
	raised := int(t.epoch) == int(r.Producer.Epoch)+1 || overflowed
	switch {
	case t.producerID != r.Producer.ID && !overflowed:
		return kerr.InvalidProducerIDMapping
	case t.state == Ongoing && current:
		return nil
	case t.state == Ongoing || t.state == Empty && !current || !current && !raised:
		return kerr.ProducerFenced
	case current && r.Commit:
		return kerr.InvalidTxnState // nothing to commit
	case current:
		return nil // abort of nothing, which still raises the epoch
	case t.endedBy(r.Commit):
		return errRepeated
	}
	return kerr.InvalidTxnState
}

// endedBy tells whether the last transaction ended that way.
func (t *txn) endedBy(commit bool) bool {
	if commit {
		return t.state == CompleteCommit
	}
	return t.state == CompleteAbort
}

// Markers is the effect of a Prepare record: the markers that a transaction's partitions are owed. It is immutable.
type Markers struct {
	TransactionalID    string
	Producer           Producer
	Commit             bool
	CoordinatorEpoch   int32
	TransactionVersion int16
	Partitions         Partitions
}

// markers gives what is owed for t, which is completing.
func (m *Machine) markers(t *txn) *Markers { return m.markersOf(t.id, &t.metadata) }

func (m *Machine) markersOf(id string, decided *metadata) *Markers {
	return &Markers{
		TransactionalID:    id,
		Producer:           Producer{decided.producerID, decided.epoch},
		Commit:             decided.state == PrepareCommit,
		CoordinatorEpoch:   m.o.CoordinatorEpoch,
		TransactionVersion: decided.clientVersion,
		Partitions:         decided.partitions,
	}
}

// Marked takes note that some partitions of sent have their marker, or are no more. With the last one the transaction is complete.
func (m *Machine) Marked(now time.Time, sent *Markers, partitions Partitions) coordinator.Output {
	t := m.txns[sent.TransactionalID]
	if t == nil || !t.completing() || (Producer{t.producerID, t.epoch}) != sent.Producer || len(t.unmarked) == 0 {
		return coordinator.Output{}
	}
	t.unmarked = t.unmarked.minus(partitions)
	if len(t.unmarked) > 0 {
		return coordinator.Output{}
	}
	return m.complete(t, now)
}

// completeRetry is how long after a failed append of a Complete record it is tried again.
const completeRetry = 100 * time.Millisecond

// complete appends the Complete record of a transaction whose markers are all written.
func (m *Machine) complete(t *txn, now time.Time) coordinator.Output {
	next := t.metadata
	next.state = CompleteAbort
	if t.state == PrepareCommit {
		next.state = CompleteCommit
	}
	next.partitions = nil
	if t.nextProducerID != noProducerID {
		next.producerID, next.epoch, next.nextProducerID = t.nextProducerID, 0, noProducerID
	}
	began := t.updateMillis
	out := m.transition(t, next, now)
	out.Next = []coordinator.Step{func(now time.Time) coordinator.Output {
		m.o.Metrics.completed(next.state, now.UnixMilli()-began)
		return m.wake(t)
	}}
	out.Failed = func(error) []coordinator.Reply {
		m.timers.add(now.Add(completeRetry), func(now time.Time) coordinator.Output { return m.complete(t, now) })
		return nil
	}
	return out
}
