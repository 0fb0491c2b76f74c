package txncoordinator

import (
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// The states of a transactional id, as they are written.
const (
	Empty          = kmsg.TransactionStateEmpty
	Ongoing        = kmsg.TransactionStateOngoing
	PrepareCommit  = kmsg.TransactionStatePrepareCommit
	PrepareAbort   = kmsg.TransactionStatePrepareAbort
	CompleteCommit = kmsg.TransactionStateCompleteCommit
	CompleteAbort  = kmsg.TransactionStateCompleteAbort
)

const (
	noProducerID = int64(-1)
	noEpoch      = int16(-1)
	// lastClientEpoch is the highest epoch that a client gets; the one above it exists only in markers and Prepare records.
	lastClientEpoch = math.MaxInt16 - 1
	// noTimeout marks a transaction that is ended from outside (KIP-939): it never times out.
	noTimeout = math.MaxInt32
)

// exhausted tells whether an epoch can't be raised for a client any more.
func exhausted(epoch int16) bool { return epoch >= lastClientEpoch }

// valid[from][to] tells which transitions exist.
var valid = [CompleteAbort + 1][CompleteAbort + 1]bool{
	Empty:          {Empty: true, Ongoing: true, PrepareAbort: true},
	Ongoing:        {Ongoing: true, PrepareCommit: true, PrepareAbort: true},
	PrepareCommit:  {CompleteCommit: true},
	PrepareAbort:   {CompleteAbort: true},
	CompleteCommit: {Empty: true, Ongoing: true, PrepareAbort: true},
	CompleteAbort:  {Empty: true, Ongoing: true, PrepareAbort: true},
}

// metadata is the hard state of a transactional id: what its last record says.
type metadata struct {
	producerID         int64
	previousProducerID int64 // the one before the last transition; differs from producerID right after a rotation only
	nextProducerID     int64 // what the Complete record will move to; -1 unless the epoch ran out
	epoch              int16
	lastEpoch          int16 // the epoch before epoch, as far as a repeated InitProducerId may still name it; else -1
	timeoutMillis      int32
	state              kmsg.TransactionState
	partitions         Partitions
	updateMillis       int64 // time of the last transition, since 1970
	startMillis        int64 // time of the first add; -1 if there was none since InitProducerId
	clientVersion      int16 // transaction version of the request that drove the last transition but InitProducerId
}

// txn is one transactional id. All but metadata is soft state.
type txn struct {
	metadata
	id string
	// unmarked are the partitions whose marker is not yet acknowledged; only in a Prepare state.
	unmarked Partitions
	waiters  []*waiter
	scan     *timer // when timeout or expiry may be due next
}

// completing tells whether the transaction is decided and not yet complete.
func (t *txn) completing() bool { return t.state == PrepareCommit || t.state == PrepareAbort }

// Options of a Machine.
type Options struct {
	// CoordinatorEpoch is the leader epoch of the partition.
	CoordinatorEpoch int32
	// NextProducerID gives a producer id that nobody had before. It must not block; its error goes to the client.
	NextProducerID func() (int64, error)
	// Settings gives what is configured now.
	Settings func() Settings
	Metrics  *Metrics // nil: none
}

// Settings are what the coordinator has from configuration and cluster metadata.
type Settings struct {
	TransactionVersion int16         // finalized level of the feature transaction.version
	TimeoutInterval    time.Duration // transaction.abort.timed.out.transaction.cleanup.interval.ms
	Expiration         time.Duration // transactional.id.expiration.ms
	ExpirationInterval time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms
}

// Machine is the transactional ids of one partition of __transaction_state. It is owned by its shard.
type Machine struct {
	o      Options
	txns   map[string]*txn
	timers timers
	counts [CompleteAbort + 1]int
	base   time.Time // scans for timeouts and expiry happen at whole intervals after it
}

// New makes an empty machine.
func New(o Options) *Machine { return &Machine{o: o, txns: make(map[string]*txn)} }

// Replay implements coordinator.Machine.
func (m *Machine) Replay(offset int64, r coordinator.Record) error {
	if r.IsMarker {
		return nil // somebody ended a transaction here that nobody can have
	}
	id, ok, err := decodeKey(r.Key)
	if err != nil || !ok {
		return err
	}
	t := m.txns[id]
	if r.Value == nil {
		if t != nil {
			m.forget(t)
		}
		return nil
	}
	next, err := decodeValue(r.Value)
	if err != nil {
		return err
	}
	if t == nil {
		t = m.add(id)
	}
	m.counts[t.state]--
	m.counts[next.state]++
	t.metadata = next
	t.unmarked = nil
	if t.completing() {
		t.unmarked = t.partitions
	}
	m.schedule(t)
	return nil
}

func (m *Machine) add(id string) *txn {
	t := &txn{id: id, metadata: metadata{
		producerID: noProducerID, previousProducerID: noProducerID, nextProducerID: noProducerID,
		epoch: noEpoch, lastEpoch: noEpoch, startMillis: -1,
	}}
	m.txns[id] = t
	m.counts[t.state]++
	return t
}

func (m *Machine) forget(t *txn) {
	m.counts[t.state]--
	delete(m.txns, t.id)
	m.timers.cancel(t.scan)
}

// Recover implements coordinator.Machine: what was decided and not completed is completed now.
func (m *Machine) Recover(now time.Time) coordinator.Output {
	m.base = now
	var out coordinator.Output
	for _, t := range m.sorted() {
		m.schedule(t)
		if !t.completing() {
			continue
		}
		if len(t.unmarked) == 0 {
			out.Next = append(out.Next, func(now time.Time) coordinator.Output { return m.complete(t, now) })
			continue
		}
		out.Effects = append(out.Effects, m.markers(t))
	}
	return out
}

// transition appends the record of t's next state. The state before is checked; a step that isn't valid is a bug.
func (m *Machine) transition(t *txn, next metadata, now time.Time) coordinator.Output {
	if !valid[t.state][next.state] {
		panic(fmt.Sprintf("transactional id %q: no way from %v to %v", t.id, t.state, next.state))
	}
	next.previousProducerID = t.producerID
	next.updateMillis = now.UnixMilli()
	var out coordinator.Output
	out.Batch.Records = []coordinator.KeyValue{{
		Key:   encodeKey(t.id),
		Value: encodeValue(&next, m.o.Settings().TransactionVersion),
	}}
	return out
}
