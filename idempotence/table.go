package idempotence

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/protocol"
)

// What Check and CheckMarker refuse; the facts are wrapped around them.
var (
	// ErrSequence: a gap in the producer's sequence, or a batch older than the window.
	ErrSequence = errors.New("out of order sequence number")
	// ErrEpoch: the producer has moved on to a later epoch.
	ErrEpoch = errors.New("invalid producer epoch")
	// ErrTransaction: the batch doesn't fit the state of the producer's transaction.
	ErrTransaction = errors.New("invalid transaction state")
	// ErrCoordinatorEpoch: a marker of a transaction coordinator that was replaced.
	ErrCoordinatorEpoch = errors.New("transaction coordinator fenced")
)

// Guard is a token of one verification: the transaction coordinator was asked, about this transaction. 0 is none.
type Guard uint64

// Origin tells who made a batch.
type Origin int8

const (
	// Client is a producer.
	Client Origin = iota
	// Coordinator is one of ours: its batches have no sequence to check.
	Coordinator
)

// Check says how a batch is to be checked.
type Check struct {
	Origin Origin
	Guard  Guard // what the append's verification gave
	// Unverified lets transactional batches begin a transaction without a guard.
	Unverified bool
}

// Verdict is what Check found. The zero Verdict lets the batch be appended.
type Verdict struct {
	// Duplicate: the batch is there already, at these offsets; it must not be appended, and the answer is that of the first time.
	Duplicate bool
	First     int64
	Last      int64
	Timestamp int64 // the maximum of its records, milliseconds
}

// Ended is a transaction that a marker ended.
type Ended struct {
	controlmarkers.Aborted
	Commit bool
}

// openTxn is a transaction without a marker.
type openTxn struct {
	first      int64
	producerID int64
	began      int64 // when it began by our clock, milliseconds; after a restart, when the producer last appended
}

// undecided is a transaction whose marker may still be lost, as it isn't below the high watermark.
type undecided struct {
	first, last int64
}

// verification is a question to the transaction coordinator that has not been followed by an append.
type verification struct {
	guard          Guard
	lowestSequence int32
	epoch          int16
	tv2            bool // the question came with an implicit add, so the transaction is new
	created        int64
}

// Table is what one partition knows of its producers.
type Table struct {
	producers     map[int64]*producer
	ongoing       []openTxn   // by ascending first offset
	undecided     []undecided // by ascending first offset
	verifications map[int64]*verification
	lastGuard     Guard // never goes back, not even when the table is restored
}

// New makes an empty table.
func New() *Table {
	return &Table{producers: map[int64]*producer{}}
}

// Reset forgets everything but which guards were given.
func (t *Table) Reset() { *t = Table{producers: map[int64]*producer{}, lastGuard: t.lastGuard} }

// Check decides about a batch with a producer id that is no marker. It changes nothing.
func (t *Table) Check(h *protocol.BatchHeader, c Check) (Verdict, error) {
	p := t.producers[h.ProducerID]
	if p != nil && c.Origin == Client && p.epoch == h.ProducerEpoch {
		if b := p.find(h.BaseSequence, h.LastSequence()); b != nil {
			return Verdict{Duplicate: true, First: b.firstOffset(), Last: b.lastOffset, Timestamp: b.timestamp}, nil
		}
	}
	if err := t.checkGuard(h, c, p); err != nil {
		return Verdict{}, err
	}
	epoch := int16(none)
	if p != nil {
		epoch = p.epoch
	}
	if h.ProducerEpoch < epoch {
		return Verdict{}, fmt.Errorf("producer %d has epoch %d, got %d: %w", h.ProducerID, epoch, h.ProducerEpoch, ErrEpoch)
	}
	if c.Origin == Client {
		if err := t.checkSequence(h, p, epoch); err != nil {
			return Verdict{}, err
		}
	}
	if p != nil && p.txnFirst != none && !h.Transactional() {
		return Verdict{}, fmt.Errorf("producer %d has a transaction open since offset %d, got a batch outside of it: %w",
			h.ProducerID, p.txnFirst, ErrTransaction)
	}
	return Verdict{}, nil
}

// checkGuard refuses a batch that would open a transaction nobody knows of (KIP-890). A coordinator's batch is checked if
// it comes with a guard.
func (t *Table) checkGuard(h *protocol.BatchHeader, c Check, p *producer) error {
	if !h.Transactional() || c.Unverified || c.Origin == Coordinator && c.Guard == 0 {
		return nil
	}
	if p != nil && p.txnFirst != none && p.epoch == h.ProducerEpoch {
		return nil
	}
	if v := t.verifications[h.ProducerID]; v != nil && c.Guard != 0 && v.guard == c.Guard {
		return nil
	}
	return fmt.Errorf("batch of producer %d is not part of an ongoing transaction: %w", h.ProducerID, ErrTransaction)
}

// checkSequence is Kafka's rule for a producer's next batch; epoch is the table's for it, -1 if p is nil.
func (t *Table) checkSequence(h *protocol.BatchHeader, p *producer, epoch int16) error {
	first := h.BaseSequence
	if v := t.verifications[h.ProducerID]; v != nil {
		if v.tv2 && first != 0 && (p == nil || p.count == 0) {
			return fmt.Errorf("producer %d begins with sequence %d: %w", h.ProducerID, first, ErrSequence)
		}
		if first > v.lowestSequence {
			return fmt.Errorf("producer %d sent sequence %d, but %d is being verified: %w",
				h.ProducerID, first, v.lowestSequence, ErrSequence)
		}
	}
	switch {
	case epoch == none: // nothing known, perhaps as retention took it: any sequence will do (KIP-360)
	case h.ProducerEpoch != epoch:
		if first != 0 {
			return fmt.Errorf("producer %d begins epoch %d with sequence %d: %w", h.ProducerID, h.ProducerEpoch, first, ErrSequence)
		}
	case !follows(p.lastSequence(), first):
		return fmt.Errorf("producer %d sent sequence %d after %d: %w", h.ProducerID, first, p.lastSequence(), ErrSequence)
	}
	return nil
}

// CheckMarker decides about a marker with a producer epoch and a coordinator epoch. Transaction version 2 and later are
// strict: each transaction has an epoch of its own there, so a marker at the current epoch while a transaction is open
// is late, and one without is a retry (KIP-1228, KAFKA-19999). Epoch 32767 has no successor and is exempt.
func (t *Table) CheckMarker(producerID int64, epoch int16, coordinatorEpoch int32, transactionVersion int16) error {
	p := t.producers[producerID]
	if p == nil {
		p = newProducer()
	}
	late := epoch < p.epoch
	if transactionVersion >= 2 && epoch == p.epoch && p.txnFirst != none && epoch != math.MaxInt16 {
		late = true
	}
	if late {
		return fmt.Errorf("producer %d has epoch %d, got a marker with %d: %w", producerID, p.epoch, epoch, ErrEpoch)
	}
	if coordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("producer %d has coordinator epoch %d, got a marker with %d: %w",
			producerID, p.coordinatorEpoch, coordinatorEpoch, ErrCoordinatorEpoch)
	}
	return nil
}

// Verify begins the verification of a batch that will be appended, or joins the one that is going on. It reports false
// if none is needed: the producer's transaction is open here. firstSequence is -1 for a coordinator's batch.
func (t *Table) Verify(producerID int64, epoch int16, firstSequence int32, tv2 bool, nowMillis int64) (Guard, bool, error) {
	if p := t.producers[producerID]; p != nil {
		if epoch < p.epoch {
			return 0, false, fmt.Errorf("producer %d has epoch %d, got %d: %w", producerID, p.epoch, epoch, ErrEpoch)
		}
		if p.txnFirst != none && epoch == p.epoch {
			return 0, false, nil
		}
	}
	v := t.verifications[producerID]
	if v == nil {
		if t.verifications == nil {
			t.verifications = map[int64]*verification{}
		}
		t.lastGuard++
		v = &verification{guard: t.lastGuard, lowestSequence: firstSequence, epoch: epoch, tv2: tv2, created: nowMillis}
		t.verifications[producerID] = v
	}
	switch {
	case epoch > v.epoch:
		v.epoch, v.lowestSequence = epoch, firstSequence
	case epoch == v.epoch:
		v.lowestSequence = min(v.lowestSequence, firstSequence)
	}
	return v.guard, true, nil
}

// Apply takes in a batch with a producer id that is no marker, after it was appended at its offsets.
func (t *Table) Apply(h *protocol.BatchHeader, nowMillis int64) {
	p := t.producer(h.ProducerID)
	p.setEpoch(h.ProducerEpoch)
	p.add(batch{
		lastSequence: h.LastSequence(), offsetDelta: h.LastOffsetDelta,
		lastOffset: h.LastOffset(), timestamp: h.MaxTimestamp,
	})
	p.lastTimestamp, p.appended = h.MaxTimestamp, nowMillis
	if !h.Transactional() {
		return
	}
	if p.txnFirst == none {
		p.txnFirst = h.BaseOffset
		t.ongoing = append(t.ongoing, openTxn{h.BaseOffset, h.ProducerID, nowMillis})
	}
	delete(t.verifications, h.ProducerID)
}

// ApplyMarker takes in a marker, after it was appended. It reports the transaction that it ended, if one was open.
func (t *Table) ApplyMarker(h *protocol.BatchHeader, m controlmarkers.Marker, nowMillis int64) (Ended, bool) {
	p := t.producer(h.ProducerID)
	p.setEpoch(h.ProducerEpoch)
	p.coordinatorEpoch = m.CoordinatorEpoch
	p.lastTimestamp, p.appended = h.MaxTimestamp, nowMillis
	delete(t.verifications, h.ProducerID)
	if p.txnFirst == none {
		return Ended{}, false
	}
	e := Ended{Commit: m.Commit}
	e.ProducerID, e.First, e.Last = h.ProducerID, p.txnFirst, h.LastOffset()
	p.txnFirst = none
	if i, ok := slices.BinarySearchFunc(t.ongoing, e.First, func(o openTxn, first int64) int { return cmp.Compare(o.first, first) }); ok {
		t.ongoing = slices.Delete(t.ongoing, i, i+1)
	}
	i, _ := slices.BinarySearchFunc(t.undecided, e.First, func(u undecided, first int64) int { return cmp.Compare(u.first, first) })
	t.undecided = slices.Insert(t.undecided, i, undecided{e.First, e.Last})
	e.LastStable = e.Last + 1
	if len(t.ongoing) > 0 {
		e.LastStable = t.ongoing[0].first
	}
	return e, true
}

func (t *Table) producer(id int64) *producer {
	p := t.producers[id]
	if p == nil {
		p = newProducer()
		t.producers[id] = p
	}
	return p
}

// FirstUnstable is the first offset of the oldest transaction that is open, or whose marker is not below the high watermark;
// -1 if there is none. The high watermark of a table must not go back.
func (t *Table) FirstUnstable(highWatermark int64) int64 {
	if len(t.undecided) > 0 {
		t.undecided = slices.DeleteFunc(t.undecided, func(u undecided) bool { return u.last < highWatermark })
	}
	first := int64(none)
	if len(t.ongoing) > 0 {
		first = t.ongoing[0].first
	}
	if len(t.undecided) > 0 && (first == none || t.undecided[0].first < first) {
		first = t.undecided[0].first
	}
	return first
}

// Open is the number of open transactions, and when the oldest of them began by our clock (-1 without one). After a
// restart its producer's last append counts as its begin.
func (t *Table) Open() (count int, beganMillis int64) {
	if len(t.ongoing) == 0 {
		return 0, none
	}
	return len(t.ongoing), t.ongoing[0].began
}

// Expire forgets the producers that appended nothing for the given time and have no open transaction, and the
// verifications that nothing followed. It reports how many producers it forgot.
func (t *Table) Expire(nowMillis, expirationMillis int64) int {
	before := len(t.producers)
	maps.DeleteFunc(t.producers, func(_ int64, p *producer) bool {
		return p.txnFirst == none && nowMillis-p.appended >= expirationMillis
	})
	maps.DeleteFunc(t.verifications, func(_ int64, v *verification) bool {
		return nowMillis-v.created >= expirationMillis
	})
	return before - len(t.producers)
}

// Len is the number of producers, and of verifications going on.
func (t *Table) Len() (producers, verifications int) { return len(t.producers), len(t.verifications) }

// Entries gives what a snapshot has of each producer, in no order.
func (t *Table) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for id, p := range t.producers {
			if !yield(p.entry(id)) {
				return
			}
		}
	}
}
