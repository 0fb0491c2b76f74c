package coordinator

import (
	"iter"
	"time"

	"oncelog/protocol"
)

// Log is the partition under a shard, led by this node at the epoch that the shard was loaded for.
type Log interface {
	// Append writes one whole batch, and gives the offset of its last record. It fails if the partition is no longer led
	// at that epoch. A failed append must have left nothing that could be committed later, or fail all later ones.
	Append(a AppendRequest) (lastOffset int64, err error)
	// Committed gives the high watermark, and a channel that is closed when it moves or the partition is no longer led.
	Committed() (highWatermark int64, changed <-chan struct{})
	// Batches reads all batches from the one that holds offset from to the log's end.
	Batches(from int64) iter.Seq2[protocol.Batch, error]
}

// AppendRequest is one batch for the log. The batch's base offset and leader epoch are the log's to fill in.
type AppendRequest struct {
	Batch              protocol.Batch
	Guard              any   // verification of a transactional batch, as in Batch
	TransactionVersion int16 // of a marker, as in Batch
	Now                time.Time
}
