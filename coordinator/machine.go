package coordinator

import (
	"time"

	"oncelog/controlmarkers"
)

// Machine is a deterministic state machine on one partition of an internal topic. All methods are called by one
// goroutine at a time, and none may block.
//
// Hard state is what the log says and only Replay writes it. Soft state (who waits for what, timers) may be changed by
// operations at once, and must be rebuilt by Recover as far as it is derivable.
type Machine interface {
	// Replay folds one record into the hard state. The bytes of r are valid only during the call. An error means that
	// the record can't be understood: a load fails for good, a running shard goes offline.
	Replay(offset int64, r Record) error
	// Recover runs once after the load: it re-arms deadlines and emits the effects that the state owes.
	Recover(now time.Time) Output
	// Deadline is when Tick is wanted next; the zero time means never. It is asked after every operation and must be cheap.
	Deadline() time.Time
	// Tick does what is due at now. It may leave some of it for the next call by returning a Deadline that has passed.
	Tick(now time.Time) Output
}

// Record is one record of the log as Replay sees it: a key and a value, or the marker that ends a producer's transaction.
type Record struct {
	Key           []byte
	Value         []byte // nil for a tombstone
	Timestamp     int64  // milliseconds since 1970
	Transactional bool
	ProducerID    int64 // -1 unless transactional or a marker
	ProducerEpoch int16 // -1 unless transactional or a marker
	IsMarker      bool
	Marker        controlmarkers.Marker // if IsMarker
}

// KeyValue is one record to append. A nil Value is a tombstone.
type KeyValue struct {
	Key, Value []byte
}

// Batch is what one operation appends: one record batch, so all of it or nothing. The zero value appends nothing.
type Batch struct {
	Records []KeyValue

	// Transactional marks the records as part of the producer's transaction; they are appended with its id and epoch.
	Transactional bool
	// Control asks for a batch that holds Marker alone; Records must be empty.
	Control bool
	Marker  controlmarkers.Marker

	ProducerID    int64 // if Transactional or Control
	ProducerEpoch int16 // if Transactional or Control

	// Guard is what the verification of a transactional batch gave; only the log looks into it.
	Guard any
	// TransactionVersion of a marker says which epochs the log accepts (KIP-1228).
	TransactionVersion int16
}

// Empty tells whether there is nothing to append.
func (b *Batch) Empty() bool { return len(b.Records) == 0 && !b.Control }

// Output is what an operation decided. Its batch is appended and replayed at once; replies and effects are let go when
// the batch, and everything that the operation could see, is committed.
type Output struct {
	Batch   Batch
	Replies []Reply
	Effects []any

	// Next are operations to run directly after this one was replayed, in order and before any other: they see its result.
	// They don't run if the append fails.
	Next []Step
	// Failed, if not nil, replaces what happens when the append fails: it may put soft state right, and returns the
	// replies to give instead. Without it the operation's own caller and all of Replies get the error.
	Failed func(err error) []Reply
}

// Step is an operation without a caller of its own.
type Step func(now time.Time) Output

// Reply answers a caller: that of the operation that returns it, or an earlier one that was left waiting.
type Reply struct {
	To    Token
	Value any
	Err   error
}

// Token names a caller that waits for an answer. It is answered once; further answers are dropped. The zero Token is nobody.
type Token struct{ c *call }

// IsZero tells whether the token is nobody.
func (t Token) IsZero() bool { return t.c == nil }

// Reply is an Output that appends nothing and answers with v.
func (t Token) Reply(v any) Output { return Output{Replies: []Reply{{To: t, Value: v}}} }

// Fail is an Output that appends nothing and answers with err.
func (t Token) Fail(err error) Output { return Output{Replies: []Reply{{To: t, Err: err}}} }
