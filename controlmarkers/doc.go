// Package controlmarkers has the records that end transactions, and the index of the transactions that were aborted, as
// data. It does no I/O: whoever owns the files reads and writes the bytes.
//
// # Marker
//
// A marker is a record batch of one record and exactly 78 bytes. It occupies one offset, is transactional and a control
// batch (attributes 0x30), is never compressed, and has no sequence:
//
//	+----------------------- batch header, 61 bytes ------------------------+
//	| ... attributes 0x30 | lastOffsetDelta 0 | timestamp twice |           |
//	| producerId | producerEpoch | baseSequence -1 | recordCount 1          |
//	+-----------------------------------------------------------------------+
//	| length 16 | attributes 0 | timestampDelta 0 | offsetDelta 0           |   1 byte each
//	| keyLength 4 | key: version int16 (0), type int16 (0 abort, 1 commit)  |
//	| valueLength 6 | value: version int16 (0), coordinatorEpoch int32      |
//	| headerCount 0                                                         |
//	+-----------------------------------------------------------------------+
//
// Readers accept higher versions and longer keys and values, and skip types that they don't know.
//
// # Aborted transactions
//
// A `.txnindex` file belongs to the segment that holds the abort markers, and is a sequence of entries of 34 bytes:
//
//	+---------------+------------------+-------------------+------------------+------------------------+
//	| version int16 | producerId int64 | firstOffset int64 | lastOffset int64 | lastStableOffset int64 |
//	+---------------+------------------+-------------------+------------------+------------------------+
//
// lastOffset is the marker's, and strictly increases. lastStableOffset is the last stable offset just after the
// transaction ended: a reader that looks for the transactions that began below an offset is done when it meets an entry
// with a lastStableOffset at or above it.
package controlmarkers
