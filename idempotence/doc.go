// Package idempotence is what one partition knows of its producers: their sequences, epochs and open transactions. It
// decides whether a batch may be appended, and whether it already was.
//
// A Table is a fold over the partition's log. Check and CheckMarker change nothing; Apply and ApplyMarker follow a
// successful append, and rebuild the table from the log after a restart. Only verifications (KIP-890) are not in the log:
// they are forgotten with the process, and the next append asks the transaction coordinator again.
//
// A Table belongs to its partition and is guarded by the partition's lock.
//
// # Snapshots
//
// A table is saved as two files that carry the log end offset it stands for as their name. `<offset>.snapshot` is Kafka's:
//
//	+---------------------+------------------------------+-------------+---------+
//	| version int16 (1)   | CRC-32C uint32 over the rest | count int32 | entries |
//	+---------------------+------------------------------+-------------+---------+
//	entry, 46 bytes: producerId int64, epoch int16, lastSequence int32, lastOffset int64, offsetDelta int32,
//	                 timestamp int64, coordinatorEpoch int32, currentTxnFirstOffset int64
//
// It holds the newest batch of each producer, and for age only the timestamp of the records. `<offset>.window` is ours, and
// Kafka skips it. It holds the rest: all batches of the windows, and when they were appended.
//
//	+---------------------+------------------------------+------------------------+-------------+---------+
//	| version int16 (1)   | CRC-32C uint32 over the rest | snapshot's CRC uint32  | count int32 | windows |
//	+---------------------+------------------------------+------------------------+-------------+---------+
//	window: producerId int64, appended int64, batches uint8 (at most 5),
//	        batches × { lastSequence int32, offsetDelta int32, lastOffset int64, timestamp int64 }, oldest first
//
// The snapshot's CRC ties the two together: a window file beside a snapshot that Kafka has written anew says nothing.
//
// # Invariants
//
//   - Batches of one producer and epoch follow each other without a gap, modulo 2^31.
//   - A transaction is open from its first batch to the first marker of its producer; it is ongoing exactly then.
//   - ongoing is ascending by first offset.
package idempotence
