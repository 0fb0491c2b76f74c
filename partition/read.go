package partition

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/controlmarkers"
	"oncelog/log"
	"oncelog/protocol"
)

// Read finds the records of one fetch. It blocks no append, and none blocks it.
func (p *Partition) Read(r ReadRequest) (res ReadResult, err error) {
	defer p.guard(&err)
	if err := p.load(); err != nil {
		return res, err
	}
	o, _, err := p.view.reader(r.CurrentLeaderEpoch, r.CurrentLeaderEpoch >= 0, r.AnyReplica)
	if err != nil {
		return res, err
	}
	res = ReadResult{HW: o.HW, LSO: o.LSO, LogStart: o.Start, LeaderEpoch: o.LeaderEpoch}
	if r.LastFetchedEpoch >= 0 {
		if res.Diverging, err = p.diverging(r, o); err != nil || res.Diverging != nil {
			return res, err
		}
	}
	if r.Offset < o.Start || r.Offset > o.End {
		return res, fmt.Errorf("offset %d, the log has [%d, %d): %w", r.Offset, o.Start, o.End, kerr.OffsetOutOfRange)
	}
	if r.Isolation == ReadCommitted {
		res.Aborted = []AbortedTxn{}
	}
	bound := o.bound(r.Isolation)
	if r.Offset >= bound {
		return res, nil
	}
	for {
		if res.Slice, err = p.log.Read(r.Offset, r.MaxBytes, r.MinOne, bound); err != nil {
			return res, p.readError(err)
		}
		if p.log.Suspicious() {
			p.mendLater()
		}
		if r.Isolation != ReadCommitted || res.Slice.Len == 0 {
			return res, nil
		}
		if res.Aborted, err = p.aborted(r.Offset, res); err != nil {
			res.Slice.Release()
			return ReadResult{}, err
		}
		if !res.Slice.Stale() {
			return res, nil
		}
		// It was compacted meanwhile, and with the aborted records what tells of them may have gone.
		res.Slice.Release()
		res.Slice, res.Aborted = log.Slice{}, []AbortedTxn{}
	}
}

// bound is the offset up to where an isolation sees.
func (o Offsets) bound(i Isolation) int64 {
	switch i {
	case ReadCommitted:
		return o.LSO
	case ReadLogEnd:
		return o.End
	default:
		return o.HW
	}
}

// aborted lists the aborted transactions that the reader of a slice has to skip. As in Kafka the list has the grain of the
// offset index, so it may name some that begin behind the slice.
func (p *Partition) aborted(from int64, res ReadResult) ([]AbortedTxn, error) {
	if !p.txns.reaches(from) {
		return res.Aborted, nil
	}
	to, err := res.Slice.UpperBound()
	if err != nil {
		return nil, p.readError(err)
	}
	var few [16]controlmarkers.Aborted
	found, err := p.abortedIn(few[:0], from, to)
	if err != nil {
		return nil, p.fail(err)
	}
	list := make([]AbortedTxn, 0, len(found))
	for _, a := range found {
		list = append(list, AbortedTxn{a.ProducerID, a.First})
	}
	return list, nil
}

// diverging compares the reader's log with ours (KIP-595): not nil if they are different from there on.
func (p *Partition) diverging(r ReadRequest, o Offsets) (*EpochEnd, error) {
	e := p.epochs.Load().end(r.LastFetchedEpoch, o.End)
	switch {
	case e.EndOffset < 0:
		return nil, fmt.Errorf("epoch %d is unknown: %w", r.LastFetchedEpoch, kerr.OffsetOutOfRange)
	case r.Offset < o.Start:
		return nil, fmt.Errorf("offset %d, the log starts at %d: %w", r.Offset, o.Start, kerr.OffsetOutOfRange)
	case e.Epoch < r.LastFetchedEpoch || e.EndOffset < r.Offset:
		return &e, nil
	}
	return nil, nil
}

// readError gives an error of the log its code. Reading below a start that has moved meanwhile is the reader's error; a bad read takes nothing
// offline, unless what was read can't be what was written.
func (p *Partition) readError(err error) error {
	if failed := p.Err(); failed != nil {
		return failed
	}
	if errors.Is(err, log.ErrCorrupt) {
		return p.fail(err)
	}
	return readError(err)
}

// Readable is how many bytes lie between an offset and the end of what the isolation lets a reader see.
func (p *Partition) Readable(offset int64, i Isolation) int64 {
	bound := p.Offsets().bound(i)
	if offset >= bound {
		return 0
	}
	n, err := p.log.Distance(offset, bound)
	if err != nil {
		return math.MaxInt64 // the reader shall look, and see for itself
	}
	return n
}

// Batches reads all batches from the one that holds the offset to the end of the log as it is now. A batch is valid
// until the next one.
func (p *Partition) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	if err := p.Err(); err != nil {
		return func(yield func(protocol.Batch, error) bool) { yield(nil, err) }
	}
	return p.log.Batches(from)
}

// Producers tells of each producer with state here, in no order. Any replica answers.
func (p *Partition) Producers() (list []ProducerState, err error) {
	defer p.guard(&err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := p.loadLocked(); err != nil {
		return nil, err
	}
	for e := range p.mu.table.Entries() {
		list = append(list, ProducerState{
			ProducerID: e.ProducerID, Epoch: e.Epoch, LastSequence: e.LastSequence, LastTimestamp: e.Timestamp,
			CoordinatorEpoch: e.CoordinatorEpoch, TxnStartOffset: e.TxnFirstOffset,
		})
	}
	return list, nil
}
