package partition

import (
	"fmt"
	"time"

	"oncelog/idempotence"
	"oncelog/log"
	"oncelog/protocol"
)

// Guard is what Verify gave for a transactional append; 0 is none. It is good until the next transactional batch or
// marker of its producer is appended (KIP-890).
type Guard = idempotence.Guard

// Origin tells who made a batch.
type Origin int8

const (
	// OriginClient is a producer: everything about its batch is checked.
	OriginClient Origin = iota
	// OriginCoordinator is a coordinator of ours: neither records nor sequences are checked, but epochs are, and the guard
	// is if one is given.
	OriginCoordinator
)

// Isolation is up to where a reader sees.
type Isolation int8

const (
	// ReadUncommitted is up to the high watermark.
	ReadUncommitted Isolation = iota
	// ReadCommitted is up to the last stable offset; the aborted transactions come with the records.
	ReadCommitted
	// ReadLogEnd is everything, for replicas.
	ReadLogEnd
)

// AppendRequest is one batch to append. The partition writes offset, leader epoch, and where it must attributes, maximum
// timestamp and CRC into Batch, so the caller's bytes change even if the append is refused.
type AppendRequest struct {
	Batch       protocol.Batch // exactly one, whole
	Origin      Origin
	Acks        int16 // -1 asks for the ISR to be large enough
	Guard       Guard
	ExpectEpoch int32 // leader epoch that the caller knows, which must still be the current one; -1 for any
	// TransactionVersion matters if Batch is a marker of a coordinator: which producer epochs it may carry (KIP-1228).
	TransactionVersion int16
	// SyncHere has what must be durable before the append is acknowledged made so by Append itself, unless somebody is at it: for callers that
	// would do nothing but wait for it.
	SyncHere bool
	Now      time.Time
}

// Appended is where a batch went. If the append was refused only LogStart and LeaderEpoch mean something.
type Appended struct {
	BaseOffset    int64
	LastOffset    int64
	LogAppendTime int64 // milliseconds, -1 on a CreateTime topic; the original batch's maximum timestamp for a duplicate
	LogStart      int64 // as the answer must show it: -1 with the errors that Kafka finds before it looks at the log
	LeaderEpoch   int32
	Duplicate     bool // nothing was appended: the offsets are those of the first time
	// Flush is not 0 if everything below it has still to be durable before the append is acknowledged (flush.messages): AwaitDurable.
	Flush int64
	// SyncedHere tells that Append has waited for the disk.
	SyncedHere bool
}

// RecordErrors refuses a batch for some of its records. It unwraps to INVALID_RECORD or INVALID_TIMESTAMP.
type RecordErrors struct {
	Err     error
	Message string // of the partition's answer
	Records []RecordError
}

// RecordError is what is wrong with one record.
type RecordError struct {
	BatchIndex int32 // of the record in the batch
	Message    string
}

func (e *RecordErrors) Error() string { return e.Message }
func (e *RecordErrors) Unwrap() error { return e.Err }

// String is how Kafka prints it within Message.
func (e RecordError) String() string {
	return fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", e.BatchIndex, e.Message)
}

// MarkerRequest is one marker to append.
type MarkerRequest struct {
	ProducerID         int64
	Epoch              int16
	CoordinatorEpoch   int32
	Commit             bool
	TransactionVersion int16 // of the WriteTxnMarkers request's marker; 0 before v2
	ExpectEpoch        int32 // as in AppendRequest
	Now                time.Time
}

// Offsets is a consistent view. Invariant: Start <= LSO <= HW <= End, but for LSO < Start after DeleteRecords into a batch
// of an open transaction, as in Kafka.
type Offsets struct {
	Start, LSO, HW, End int64
	LeaderEpoch         int32
}

// ReadRequest asks for the records from Offset on.
type ReadRequest struct {
	Offset             int64
	MaxBytes           int
	MinOne             bool // give the first batch even if it is larger than MaxBytes
	Isolation          Isolation
	CurrentLeaderEpoch int32 // below 0 for any
	LastFetchedEpoch   int32 // below 0 for none
	AnyReplica         bool  // read though this node doesn't lead (consumers from Fetch v11 on)
}

// ReadResult is what a fetch answers. Slice must be released, also when it is empty.
type ReadResult struct {
	Slice       log.Slice
	HW          int64
	LSO         int64
	LogStart    int64
	LeaderEpoch int32
	Aborted     []AbortedTxn // by ascending offset of the marker; not nil if the isolation is ReadCommitted
	Diverging   *EpochEnd    // not nil: the reader's log differs from ours from there on, and Slice is empty
}

// AbortedTxn is a transaction whose records a reader must skip up to its marker.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// EpochEnd is the end offset of a leader epoch: the first offset of the next one. Both are -1 if unknown.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// FoundOffset is the answer to ListOffsets; what isn't found or doesn't apply is -1.
type FoundOffset struct {
	Offset      int64
	Timestamp   int64
	LeaderEpoch int32
}

// The special timestamps of ListOffsets.
const (
	LatestTimestamp                = -1
	EarliestTimestamp              = -2
	MaxTimestamp                   = -3
	EarliestLocalTimestamp         = -4
	LatestTieredTimestamp          = -5
	EarliestPendingUploadTimestamp = -6
)

// ProducerState is what DescribeProducers tells of one producer.
type ProducerState struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // -1 if no batch is known
	LastTimestamp    int64
	CoordinatorEpoch int32 // -1 before the first marker
	TxnStartOffset   int64 // -1 without an open transaction
}

// A Waiter is poked when one of the partitions that it watches has moved. Make it with capacity 1: a poke that finds it
// full is dropped, so one poke stands for any number of changes.
type Waiter chan struct{}

// NewWaiter makes a waiter.
func NewWaiter() Waiter { return make(Waiter, 1) }
