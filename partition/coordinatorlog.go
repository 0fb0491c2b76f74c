package partition

import (
	"iter"
	"time"

	"oncelog/protocol"
)

// CoordinatorLog is a partition of an internal topic as its coordinator sees it, which was loaded when the partition was
// led at a certain epoch. Once that is over, every append fails.
type CoordinatorLog struct {
	p     *Partition
	epoch int32
}

// CoordinatorLog gives the log of a coordinator that is loaded at the epoch.
func (p *Partition) CoordinatorLog(epoch int32) *CoordinatorLog { return &CoordinatorLog{p, epoch} }

// Append appends a coordinator's batch with the demands of acks=-1. A batch of a transaction carries the guard of its
// verification, if there was one; a marker the transaction version that it was sent with.
func (l *CoordinatorLog) Append(b protocol.Batch, guard Guard, transactionVersion int16, now time.Time) (lastOffset int64, err error) {
	a, err := l.p.Append(AppendRequest{
		Batch: b, Origin: OriginCoordinator, Acks: -1, Guard: guard, ExpectEpoch: l.epoch,
		TransactionVersion: transactionVersion, Now: now,
	})
	return a.LastOffset, err
}

// Committed gives the high watermark, and a channel that is closed when it moves or the leadership ends.
func (l *CoordinatorLog) Committed() (highWatermark int64, changed <-chan struct{}) {
	return l.p.Committed()
}

// Batches reads all batches from the one that holds the offset on; see Partition.Batches.
func (l *CoordinatorLog) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	return l.p.Batches(from)
}
