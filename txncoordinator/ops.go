package txncoordinator

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
)

// Producer is a producer id and its epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoProducer is what stands for none.
var NoProducer = Producer{noProducerID, noEpoch}

// InitProducerID is one InitProducerId request with a transactional id.
type InitProducerID struct {
	TransactionalID string
	TimeoutMillis   int32
	Expected        Producer      // NoProducer if the client has none yet
	Wait            time.Duration // how long to wait for a completing transaction
}

// InitProducerID answers with a Producer whose epoch fences all earlier ones of the id. An open transaction is aborted
// first, and the caller told to come again.
func (m *Machine) InitProducerID(now time.Time, to coordinator.Token, r InitProducerID) coordinator.Output {
	t := m.txns[r.TransactionalID]
	if t == nil {
		id, err := m.o.NextProducerID()
		if err != nil {
			return to.Fail(err)
		}
		t = m.add(r.TransactionalID)
		t.producerID = id
		t.timeoutMillis = r.TimeoutMillis
		t.updateMillis = now.UnixMilli()
		m.schedule(t)
	}
	if t.completing() {
		return m.retryLater(t, to, now, r.Wait, func(then time.Time) coordinator.Output {
			r.Wait -= then.Sub(now)
			return m.InitProducerID(then, to, r)
		})
	}
	expected := r.Expected
	if expected != NoProducer && t.epoch != noEpoch && expected.ID != t.producerID &&
		!(expected.ID == t.previousProducerID && exhausted(expected.Epoch)) {
		return to.Fail(kerr.ProducerFenced)
	}
	if t.state == Ongoing {
		out, err := m.fence(t, now)
		if err != nil {
			return to.Fail(err)
		}
		out.Replies = []coordinator.Reply{{To: to, Err: kerr.ConcurrentTransactions}}
		return out
	}
	next := t.metadata
	next.state, next.partitions, next.startMillis, next.nextProducerID = Empty, nil, -1, noProducerID
	next.timeoutMillis = r.TimeoutMillis
	if err := m.raise(t, &next, expected); err != nil {
		return to.Fail(err)
	}
	out := m.transition(t, next, now)
	out.Replies = []coordinator.Reply{{To: to, Value: Producer{next.producerID, next.epoch}}}
	return out
}

// raise gives next the epoch, or the fresh producer id, that InitProducerId answers with.
func (m *Machine) raise(t *txn, next *metadata, expected Producer) error {
	switch {
	case exhausted(t.epoch) && (expected == NoProducer || expected.Epoch == t.epoch):
		id, err := m.o.NextProducerID()
		if err != nil {
			return err
		}
		next.producerID, next.epoch, next.lastEpoch = id, 0, expected.Epoch
	case expected == NoProducer:
		next.epoch, next.lastEpoch = t.epoch+1, noEpoch
	case expected.Epoch == t.epoch || t.epoch == noEpoch:
		next.epoch, next.lastEpoch = t.epoch+1, t.epoch
	case expected.Epoch == t.lastEpoch:
		// The answer to the same request was lost: it is given again.
	default:
		return kerr.ProducerFenced
	}
	return nil
}

// AddPartitions is one transaction of an AddPartitionsToTxn request, or what stands for one.
type AddPartitions struct {
	TransactionalID string
	Producer        Producer
	Partitions      Partitions
	ClientVersion   int16         // 2 for the implicit adds of KIP-890, else 0
	Wait            time.Duration // how long to wait for a completing transaction
}

// AddPartitions makes partitions part of the transaction, and begins one if none is open. It answers nil.
func (m *Machine) AddPartitions(now time.Time, to coordinator.Token, r AddPartitions) coordinator.Output {
	t := m.txns[r.TransactionalID]
	switch {
	case t == nil:
		return to.Fail(kerr.InvalidProducerIDMapping)
	case t.completing():
		return m.retryLater(t, to, now, r.Wait, func(then time.Time) coordinator.Output {
			r.Wait -= then.Sub(now)
			return m.AddPartitions(then, to, r)
		})
	case t.producerID != r.Producer.ID:
		return to.Fail(kerr.InvalidProducerIDMapping)
	case t.epoch != r.Producer.Epoch:
		return to.Fail(kerr.ProducerFenced)
	case t.state == Ongoing && t.partitions.contains(r.Partitions):
		return to.Reply(nil)
	case m.tooNew(r.ClientVersion):
		return to.Fail(kerr.UnsupportedVersion)
	}
	next := t.metadata
	next.state, next.clientVersion = Ongoing, r.ClientVersion
	next.partitions = t.partitions.union(r.Partitions)
	if t.state != Ongoing {
		next.startMillis = now.UnixMilli()
	}
	out := m.transition(t, next, now)
	out.Replies = []coordinator.Reply{{To: to}}
	return out
}

// tooNew tells whether the records of this feature level can't hold what a client's transaction version asks for. Kafka
// accepts it there, fails to write it, and leaves the id unusable until it is loaded again.
func (m *Machine) tooNew(clientVersion int16) bool {
	return clientVersion > 0 && m.o.Settings().TransactionVersion == 0
}

// Verify is a question whether partitions are part of the open transaction.
type Verify struct {
	TransactionalID string
	Producer        Producer
	Partitions      Partitions
}

// Verify answers with the Partitions that are not part of the transaction. An error holds for all of them.
func (m *Machine) Verify(now time.Time, to coordinator.Token, r Verify) coordinator.Output {
	t := m.txns[r.TransactionalID]
	switch {
	case t == nil, t.producerID != r.Producer.ID:
		return to.Fail(kerr.InvalidProducerIDMapping)
	case t.epoch != r.Producer.Epoch:
		return to.Fail(kerr.ProducerFenced)
	case t.completing():
		return to.Fail(kerr.ConcurrentTransactions)
	}
	return to.Reply(r.Partitions.minus(t.partitions))
}

// EndTxn is one EndTxn request.
type EndTxn struct {
	TransactionalID string
	Producer        Producer
	Commit          bool
	ClientVersion   int16         // 2 from EndTxn v5 on, else 0
	Wait            time.Duration // how long to wait for the completion
}

// EndTxn decides the transaction. It answers with the Producer of the next one, once the transaction is complete or
// Wait has passed since the decision.
func (m *Machine) EndTxn(now time.Time, to coordinator.Token, r EndTxn) coordinator.Output {
	t := m.txns[r.TransactionalID]
	if t == nil {
		return to.Fail(kerr.InvalidProducerIDMapping)
	}
	verdict := t.judgeEnd(r)
	if r.ClientVersion >= 2 {
		verdict = t.judgeEndBumping(r)
	}
	switch {
	case verdict == errRepeated:
		return to.Reply(Producer{t.producerID, t.epoch})
	case verdict != nil:
		return to.Fail(verdict)
	case m.tooNew(r.ClientVersion):
		return to.Fail(kerr.UnsupportedVersion)
	}
	next := t.metadata
	next.clientVersion = r.ClientVersion
	if err := m.prepare(t, &next, r.Commit, now); err != nil {
		return to.Fail(err)
	}
	answer := coordinator.Reply{To: to, Value: Producer{next.producerID, next.epoch}}
	if next.nextProducerID != noProducerID {
		answer.Value = Producer{next.nextProducerID, 0}
	}
	out := m.decide(t, next, now)
	if r.Wait <= 0 {
		out.Replies = []coordinator.Reply{answer}
		return out
	}
	park := func(now time.Time) coordinator.Output {
		m.await(t, &waiter{done: answer}, answer, now, r.Wait)
		return coordinator.Output{}
	}
	out.Next = append([]coordinator.Step{park}, out.Next...)
	return out
}

// prepare gives next, a copy of t's state with the client version set, the decided state with its epoch: raised by one
// if the client is of KIP-890, with a producer id in reserve where the epoch runs out by that.
func (m *Machine) prepare(t *txn, next *metadata, commit bool, now time.Time) error {
	next.state = PrepareAbort
	if commit {
		next.state = PrepareCommit
	}
	if t.state != Ongoing {
		next.startMillis, next.partitions = now.UnixMilli(), nil
	}
	if next.clientVersion < 2 || t.epoch == math.MaxInt16 {
		return nil
	}
	if exhausted(t.epoch) {
		id, err := m.o.NextProducerID()
		if err != nil {
			return err
		}
		next.nextProducerID = id
	}
	next.epoch, next.lastEpoch = t.epoch+1, t.epoch
	return nil
}

// decide appends the Prepare record, and has the markers sent once it is committed.
func (m *Machine) decide(t *txn, next metadata, now time.Time) coordinator.Output {
	out := m.transition(t, next, now)
	if len(next.partitions) == 0 {
		out.Next = []coordinator.Step{func(now time.Time) coordinator.Output { return m.complete(t, now) }}
		return out
	}
	out.Effects = []any{m.markersOf(t.id, &next)}
	return out
}

// fence aborts an open transaction behind its producer's back: for InitProducerId, or because it timed out. Whichever
// protocol its client speaks, the level of the cluster decides how the epoch is raised.
func (m *Machine) fence(t *txn, now time.Time) (coordinator.Output, error) {
	next := t.metadata
	next.clientVersion = 0
	if m.o.Settings().TransactionVersion >= 2 {
		next.clientVersion = 2
	}
	if err := m.prepare(t, &next, false, now); err != nil {
		return coordinator.Output{}, err
	}
	if next.clientVersion < 2 && t.epoch < math.MaxInt16 {
		next.epoch, next.lastEpoch = t.epoch+1, noEpoch
	}
	return m.decide(t, next, now), nil
}
