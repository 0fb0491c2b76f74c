package partition

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/protocol"
)

// unknownOffset stands for an offset that an answer doesn't have.
const unknownOffset = -1

// write is one append on its way to the log.
type write struct {
	batch  protocol.Batch
	header protocol.BatchHeader // of batch
	req    AppendRequest
	marker controlmarkers.Marker
	ends   bool // batch is a marker
}

// Append appends one batch, whose records are readable when the high watermark has passed them (AwaitHW).
//
// Errors wrap the protocol's codes. Only a *RecordErrors has a message for the client: Kafka answers all else without one.
// A refused batch leaves no trace.
func (p *Partition) Append(r AppendRequest) (a Appended, err error) {
	defer p.guard(&err)
	a = Appended{BaseOffset: unknownOffset, LastOffset: unknownOffset, LogAppendTime: -1, LogStart: unknownOffset, LeaderEpoch: -1}
	cfg := p.cfg.Load()
	o, err := p.view.leader(r.ExpectEpoch)
	if err == nil && r.Acks == -1 {
		err = p.view.enoughInSync(cfg.MinInsyncReplicas)
	}
	a.LeaderEpoch = o.LeaderEpoch
	if err != nil {
		return a, err
	}
	w := write{batch: r.Batch, req: r}
	if r.Origin == OriginClient {
		p.shared.advancer.admit()
		scratch := p.shared.scratch()
		defer p.shared.rebuilt.Put(scratch)
		w.batch, err = p.inspect(r.Batch, cfg, r.Now.UnixMilli(), scratch)
	} else {
		err = w.prepare(cfg)
	}
	if err == nil {
		w.header = w.batch.Header()
		err = p.commit(&w, &a)
	}
	if err == nil && a.Flush > 0 && !a.Duplicate {
		a.SyncedHere = p.syncAppended(r.SyncHere)
		if a.SyncedHere && p.log.Durable() >= a.Flush {
			a.Flush = 0
		}
	}
	if err == nil || showsLogStart(err) {
		a.LogStart = p.log.Start()
	}
	return a, err
}

// prepare is what a coordinator's batch needs: its sizes checked, its marker read, the topic's timestamps.
func (w *write) prepare(cfg *config.Topic) (err error) {
	if len(w.batch) < protocol.BatchHeaderLen {
		return fmt.Errorf("batch of %d bytes: %w", len(w.batch), kerr.CorruptMessage)
	}
	h := w.batch.Header()
	if cfg.LogAppendTime {
		w.batch.SetMaxTimestamp(true, w.req.Now.UnixMilli())
	}
	if h.Control() { // no setting may keep a transaction from ending
		if w.marker, w.ends, err = controlmarkers.Decode(w.batch); err != nil || !w.ends {
			return errors.Join(errors.New("no marker in a control batch"), err)
		}
		if h.ProducerID < 0 || h.ProducerEpoch < 0 {
			return fmt.Errorf("marker of producer %d with epoch %d: %w", h.ProducerID, h.ProducerEpoch, kerr.UnknownServerError)
		}
		return nil
	}
	if len(w.batch) > int(cfg.MaxMessageBytes) {
		return fmt.Errorf("%d bytes, allowed are %d: %w", len(w.batch), cfg.MaxMessageBytes, kerr.MessageTooLarge)
	}
	return checkSegmentBytes(w.batch, cfg)
}

// commit is the part of an append under the lock: who leads, offsets, producers, the write, and what follows from it.
func (p *Partition) commit(w *write, a *Appended) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, err := p.view.leader(w.req.ExpectEpoch)
	if err == nil {
		err = p.loadLocked()
	}
	if err != nil {
		return err
	}
	a.LeaderEpoch = o.LeaderEpoch
	end := p.log.End()
	w.batch.SetBase(end, o.LeaderEpoch)
	w.header.BaseOffset, w.header.LeaderEpoch = end, o.LeaderEpoch
	verdict, err := p.checkLocked(w)
	if err != nil {
		return producerError(err)
	}
	if verdict.Duplicate {
		a.BaseOffset, a.LastOffset, a.LogAppendTime, a.Duplicate = verdict.First, verdict.Last, verdict.Timestamp, true
		if syncsEach(p.cfg.Load()) {
			a.Flush = verdict.Last + 1
		}
		return nil
	}
	if err := p.writeLocked(w); err != nil {
		return err
	}
	a.BaseOffset, a.LastOffset = end, w.header.LastOffset()
	if w.header.LogAppendTime() {
		a.LogAppendTime = w.header.MaxTimestamp
	}
	a.Flush = p.countLocked(end, p.log.End(), p.cfg.Load())
	p.publishLocked()
	p.changedLocked()
	return nil
}

// checkLocked asks the producer table.
func (p *Partition) checkLocked(w *write) (idempotence.Verdict, error) {
	h := &w.header
	if h.ProducerID < 0 {
		return idempotence.Verdict{}, nil
	}
	if w.ends {
		return idempotence.Verdict{}, p.mu.table.CheckMarker(h.ProducerID, h.ProducerEpoch, w.marker.CoordinatorEpoch, w.req.TransactionVersion)
	}
	return p.mu.table.Check(h, idempotence.Check{
		Origin: idempotence.Origin(w.req.Origin), Guard: w.req.Guard, Unverified: p.shared.unverified.Load(),
	})
}

// writeLocked writes the batch, and takes it into the producers' state.
func (p *Partition) writeLocked(w *write) error {
	if err := p.settleLocked(); err != nil {
		return err
	}
	if err := p.rollEarlyLocked(w.req.Now); err != nil {
		return p.storageErrorLocked(err)
	}
	at, err := p.log.Append(w.batch, w.req.Now)
	if at.Rolled {
		p.snapshotLocked(at.Segment)
		p.rolledLocked(at.Segment)
		p.syncSoon()
	}
	if err != nil {
		return p.storageErrorLocked(err)
	}
	p.mu.noSpace, p.mu.touched = false, true
	p.mu.behind += int64(len(w.batch))
	p.shared.advancer.note(int64(len(w.batch)))
	return p.applyLocked(w, at.Segment)
}

// applyLocked takes an appended batch into the producers' state. If the index of aborted transactions can't be written for want of
// space, it stays in memory and is written later; the log itself says the same.
func (p *Partition) applyLocked(w *write, segment int64) error {
	if w.header.ProducerID < 0 {
		return nil
	}
	now := w.req.Now.UnixMilli()
	if !w.ends {
		p.mu.table.Apply(&w.header, now)
		return nil
	}
	ended, ok := p.mu.table.ApplyMarker(&w.header, w.marker, now)
	if !ok || ended.Commit {
		return nil
	}
	if err := p.txns.add(segment, ended.Aborted); err != nil && !noSpace(err) {
		return p.fail(err)
	}
	return nil
}

// changedLocked arms what has to follow a change: the checkpoints, and the sync that flush.ms asks for.
func (p *Partition) changedLocked() {
	p.shared.highWatermarks.ring(&p.shared.schedule)
	p.shared.points.ring(&p.shared.schedule)
	ms := p.cfg.Load().FlushMs
	if ms == math.MaxInt64 || p.mu.flushing {
		return
	}
	p.mu.flushing = true
	p.shared.schedule.after(millis(ms), func(time.Time) {
		p.mu.Lock()
		p.mu.flushing = false
		p.mu.Unlock()
		p.syncSoon()
	})
}

// scratch gives a buffer for a batch that may have to be rebuilt.
func (s *shared) scratch() *[]byte {
	if b, ok := s.rebuilt.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// Verify begins the verification of a transactional append (KIP-890). needed tells that the transaction coordinator has to
// be asked before the append, which then must carry the guard. firstSequence is -1 for a coordinator's batch; tv2 tells that the
// question adds the partition to the transaction.
func (p *Partition) Verify(producerID int64, epoch int16, firstSequence int32, tv2 bool, now time.Time) (g Guard, needed bool, err error) {
	defer p.guard(&err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.view.leader(-1); err != nil {
		return 0, false, err
	}
	if err := p.loadLocked(); err != nil {
		return 0, false, err
	}
	g, needed, err = p.mu.table.Verify(producerID, epoch, firstSequence, tv2, now.UnixMilli())
	if err != nil {
		err = producerError(err)
	}
	return g, needed, err
}

// WriteMarker appends a marker with the demands of acks=-1. It can no longer be lost when AwaitHW(lastOffset+1) returned.
// A marker without an open transaction is written too, and fences older epochs.
func (p *Partition) WriteMarker(r MarkerRequest) (lastOffset int64, err error) {
	b := controlmarkers.Encode(controlmarkers.Marker{Commit: r.Commit, CoordinatorEpoch: r.CoordinatorEpoch},
		r.ProducerID, r.Epoch, r.Now.UnixMilli())
	a, err := p.Append(AppendRequest{
		Batch: b, Origin: OriginCoordinator, Acks: -1, ExpectEpoch: r.ExpectEpoch, TransactionVersion: r.TransactionVersion, Now: r.Now,
	})
	return a.LastOffset, err
}
