package partition

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// OffsetFor finds an offset by a timestamp in milliseconds, or by one of the special ones; the answer is all -1 if there is none.
// currentLeaderEpoch is -1 for any. What the isolation doesn't let a reader see is not found, or is OFFSET_NOT_AVAILABLE as
// long as a new leader doesn't know what is committed. Which special timestamps a request's version has is the caller's to check.
func (p *Partition) OffsetFor(timestamp int64, i Isolation, currentLeaderEpoch int32) (f FoundOffset, err error) {
	defer p.guard(&err)
	f = FoundOffset{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	if err := p.load(); err != nil {
		return f, err
	}
	o, epochStart, err := p.view.reader(currentLeaderEpoch, currentLeaderEpoch != -1, false)
	if err != nil {
		return f, err
	}
	var unsettled error
	if i != ReadLogEnd && o.HW < epochStart {
		unsettled = fmt.Errorf("high watermark %d, epoch began at %d: %w", o.HW, epochStart, kerr.OffsetNotAvailable)
	}
	switch {
	case timestamp == LatestTimestamp:
		if unsettled != nil {
			return f, unsettled
		}
		f.Offset, f.LeaderEpoch = o.bound(i), o.LeaderEpoch
	case timestamp == EarliestTimestamp, timestamp == EarliestLocalTimestamp:
		f.Offset, f.LeaderEpoch = o.Start, p.epochs.Load().at(o.Start)
	case timestamp == LatestTieredTimestamp, timestamp == EarliestPendingUploadTimestamp:
	case timestamp == MaxTimestamp, timestamp >= 0:
		hit, err := p.search(timestamp)
		switch {
		case err != nil:
			return f, err
		case hit.Offset >= o.bound(i):
			return f, unsettled
		}
		f = hit
	default:
		return f, fmt.Errorf("timestamp %d: %w", timestamp, kerr.UnsupportedVersion)
	}
	return f, nil
}

// search finds a record by time, regardless of who may see it.
func (p *Partition) search(timestamp int64) (FoundOffset, error) {
	find := func() (FoundOffset, bool, error) {
		t, ok, err := p.log.OffsetAt(timestamp)
		return FoundOffset(t), ok, err
	}
	if timestamp == MaxTimestamp {
		find = func() (FoundOffset, bool, error) {
			t, ok, err := p.log.MaxTimestamp()
			return FoundOffset(t), ok, err
		}
	}
	hit, ok, err := find()
	if err != nil {
		return hit, p.readError(err)
	}
	if !ok {
		hit = FoundOffset{Offset: -1, Timestamp: -1, LeaderEpoch: -1}
	}
	return hit, nil
}

// EndOffsetForEpoch tells where a leader epoch ended here (OffsetForLeaderEpoch). currentLeaderEpoch is -1 for any.
func (p *Partition) EndOffsetForEpoch(currentLeaderEpoch, epoch int32) (EpochEnd, error) {
	o, _, err := p.view.reader(currentLeaderEpoch, currentLeaderEpoch != -1, false)
	if err != nil {
		return EpochEnd{Epoch: -1, EndOffset: -1}, err
	}
	return p.epochs.Load().end(epoch, o.End), nil
}

// DeleteRecords raises the log start to an offset, -1 for the high watermark, and gives the log start that then holds. An offset below it
// changes nothing. Segments go with the next retention. The offset may lie within an open transaction.
func (p *Partition) DeleteRecords(offset int64) (low int64, err error) {
	defer p.guard(&err)
	p.mu.Lock()
	defer p.mu.Unlock()
	o, err := p.view.leader(-1)
	if err == nil {
		err = p.loadLocked()
	}
	if err != nil {
		return -1, err
	}
	switch cfg := p.cfg.Load(); {
	case cfg.CleanupCompact && !cfg.CleanupDelete:
		return -1, fmt.Errorf("the topic is only compacted: %w", kerr.PolicyViolation)
	case offset == -1:
		offset = o.HW
	case offset < 0 || offset > o.HW:
		return -1, fmt.Errorf("offset %d, high watermark %d: %w", offset, o.HW, kerr.OffsetOutOfRange)
	}
	if offset > o.Start {
		if err := p.trimLocked(offset); err != nil {
			return -1, err
		}
	}
	return p.log.Start(), nil
}

// trimLocked raises the log start.
func (p *Partition) trimLocked(offset int64) error {
	if err := p.log.TrimTo(offset); err != nil {
		return p.storageErrorLocked(err)
	}
	if err := p.trimmedLocked(); err != nil {
		return p.storageErrorLocked(err)
	}
	p.publishLocked()
	p.changedLocked()
	return nil
}
