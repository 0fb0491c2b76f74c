// Package log is one partition's segments on disk, in Apache Kafka's format: `.log`, `.index` and `.timeindex`. It
// appends record batches, finds them by offset and by time, truncates at both ends, rewrites segments (compaction) and
// recovers after a crash. It knows no producers, transactions, leaders, keys or topics: whoever owns a log learns from return
// values when a segment was begun (Appended.Rolled, Roll), removed ([]Removed) or rewritten (Rewritten), and keeps its own
// files (`.snapshot`, `.txnindex`, checkpoints) accordingly. What stays of a batch that is rewritten is the owner's to say.
//
// # Layout
//
// A segment's files are named by its base offset, 20 digits, the offset that its first batch has or could have had:
//
//	00000000000000000000.log         batches back to back
//	00000000000000000000.index       sparse: offset -> position in the .log
//	00000000000000000000.timeindex   sparse: timestamp -> offset
//
//	.log, one batch (all integers big-endian; protocol.Batch reads it):
//	  0        8        12       16    17       21   23       27        35       43       51    53       57       61
//	  +--------+--------+--------+-----+--------+----+--------+---------+--------+--------+-----+--------+--------+---
//	  | base   | length | leader |magic| CRC-32C|attr| last   | base    | max    |producer|epoch| base   | number | rec
//	  | offset | (-12)  | epoch  |  2  |of 21...|    | delta  | time    | time   | id     |     | seq.   | of rec.| ords
//	  +--------+--------+--------+-----+--------+----+--------+---------+--------+--------+-----+--------+--------+---
//
//	.index, 8 bytes an entry                       .timeindex, 12 bytes an entry
//	  +--------------------+--------------------+    +-------------------------+--------------------+
//	  | int32 offset - base| int32 position     |    | int64 timestamp (ms)    | int32 offset - base|
//	  +--------------------+--------------------+    +-------------------------+--------------------+
//	   last offset of a batch, where it starts        greatest so far, last offset of its batch
//
// Both indexes ascend. An entry is added for the first batch after more than index.interval.bytes since the last entry
// (or since the segment was opened), decided batch by batch; the time index gets one only if the timestamp rose, and a
// last one when the segment is rolled or closed. Kafka preallocates the index files of the active segment and maps them;
// here the newest entries of an active segment are in memory (at most 512 of each), the rest in the file, and a file
// never has more than its entries. Files appear when they are first written, at the latest at the roll or the close; a
// segment without batches needs no indexes. A log that is new (New) needs no directory before its first append.
//
// Other names in the directory: <name>.deleted waits for its owner to unlink it (or the next Open); .cleaned and .swap
// are a compaction under way; .cut was taken out by a recovery and is for people. What is none of these is left alone.
//
// # Concurrency
//
// One writer at a time (the owner's lock), one Rewrite beside it, any number of readers, which lock nothing: the list of segments is immutable
// and swapped whole; a segment's end is published with a version, readers of which try again while it is being changed;
// index entries that readers see never change. A reader that meets a segment which was replaced or removed
// meanwhile begins again with the present list. A Slice keeps its file open until Release. Sync runs beside the writer
// and excludes truncation. Locks, in this order: Log.replacing, Log.syncing, then at most one of Log.settling, Log.moving,
// Log.loading and Files.mu.
//
// Open files are in a Files cache that all logs of a replica set share. An idle log has none, and little memory.
//
// # Crash safety
//
// The disk may lose or tear whatever wasn't synced, and forget any change of a directory that wasn't (package vfs says
// exactly what). The owner keeps two numbers durable: the recovery point, and the log start.
//
// Append
//  1. If the batch needs a new segment: Roll.
//  2. If the batch gets an index entry and an index has no room in memory, its entries are written to its file.
//  3. The batch is written behind the end of the .log. A failed write is cut off; if that fails, too, the log is failed.
//  4. Index entries, the segment's end and the log's end are published.
//     Commit point: 3 for a SIGKILL, the next Sync for a loss of power.
//     Recovery: the batch is found whole and with its CRC, or cut off.
//
// Roll
//  1. The old segment's last time index entry is added, both indexes are written; and synced if nothing was appended since the log was opened, as
//     the owner's recovery point may be the log's end then.
//  2. If an earlier .log was created, renamed or removed and the directory not synced since, it is synced.
//  3. The new .log is created; the list of segments is swapped.
//     Commit point: 3.
//     Recovery: because of 2 at most the last .log can be missing, and because of the check for holes (below) it
//     doesn't matter that the old one isn't durable before the new one gets batches.
//
// Sync (up to an offset)
//  1. fsync of the .log of each segment below the offset that isn't durable, and of the indexes of all but the last.
//  2. fsync of the directory if it changed.
//  3. The recovery point moves.
//     Commit point: 2. An error fails the log for good; nothing is tried again.
//     Recovery: what lies at or above the recovery point is scanned, the rest trusted. As long as the last segment can still be
//     followed by another, the recovery point stays below its end, and below the first index entry that isn't durable: so no
//     index entry is trusted that wasn't synced.
//
// Advance (WriteIndexes came before it)
//  1. As Sync, with the indexes of the last segment: the recovery point comes up to the last batch.
//     Commit point, recovery: as Sync's.
//
// TruncateTo
//  1. The log's end, and the recovery point with it, go down.
//  2. The segments behind are renamed to .deleted, the last first, the directory synced after each.
//  3. The .log is cut and synced.
//  4. The entries at or above the offset are cut off both indexes, which are synced.
//     Commit point: 3.
//     Recovery: before it, the log ends somewhere between the offset and its old end, without a hole; behind it, index entries
//     that point behind the end of the log show that the indexes are to be built anew. The owner writes
//     its checkpoint of the recovery point before the next append.
//
// ResetTo
//  1. As 1 and 2 of TruncateTo, for all segments.
//  2. An empty .log is created, the directory synced.
//     Recovery: the front of the old log, the new one, or no segment, which begins a log at the owner's log start.
//
// TrimTo
//  1. The log start goes up, in memory; the owner's checkpoint is the commit point.
//
// RemoveBefore
//  1. The log start goes up, the segment leaves the list.
//  2. If an earlier change of a .log isn't durable, the directory is synced. The files are renamed to .deleted.
//     Recovery: because of 2 only the last one renamed may be back, which makes no hole; it is removed again.
//
// Rewrite (some neighbouring segments become one, which has the first one's base)
//  1. The new .log, then its indexes and .txnindex, are written to .cleaned files, and synced; then the directory is. A segment
//     alone in which everything stays as it is is left alone.
//  2. The .cleaned files are renamed to .swap, the .log last; the directory is synced. Readers see the new segment.
//  3. Of the old segments but the first the .log is removed, of the first the .txnindex unless there is a new one; sync.
//  4. The .log.swap takes the first .log's place; sync.
//  5. The other .swap files take theirs, what is left of the old segments is removed; sync.
//     Commit point: 2.
//     Recovery: as long as there is a .cleaned file, the .swap files beside it are removed, then it is. Else the .swap files are
//     complete and all the old files may go: steps 3 to 5 are done again. Because each is durable before the next, no old
//     segment comes back among the new batches, and none without its .txnindex. Old segments behind the last new batch may
//     come back whole, as in Kafka: nothing was to stay of them, and nothing of what stays is in them.
//
// Close
//  1. The last time index entry is added, the indexes are written.
//  2. As Advance. An index without entries by offset isn't synced: it takes a segment of a few KiB to be read instead.
//     Recovery: none after a clean shutdown; where an index isn't what it should be, reads notice and do without it.
//
// Open
//  1. The directory is listed; what ends in .deleted, and indexes without their .log, are removed. A round of compaction
//     that has .cleaned files is forgotten with its .swap files at or above the first of these (Kafka's rule); other .swap
//     files replace all segments in their range of offsets.
//  2. After a clean shutdown only the end of the last segment is read, from its last index entry on. If that isn't a
//     whole batch it is scanned. Segments without a plausible index are scanned, too.
//  3. Else all from the batch on that holds the recovery point is scanned, once: each batch must be whole, of magic 2, have its CRC and
//     rise in offset. What doesn't is cut off, and the segments behind are removed, these first. The same happens where
//     a segment ends before the next begins, above the recovery point and unless the log was compacted: its
//     end was lost. Both indexes of a scanned segment are written anew from where the scan began, but for a last one too small to have entries. If whole batches lie behind the place of the cut, what is
//     cut off is copied to a .cut file, durably, before anything else, and a segment behind that holds some is renamed to one.
//     The batch that holds the recovery point is found by the last index entry below it; where that doesn't lead there the segment is scanned
//     whole. The owner is told of every batch that is scanned (Replay).
//     Recovery: steps 1 to 3 again. A copy that is there already is taken as it is.
//
// Mend (an index in which reads found wrong entries)
//  1. The index counts as empty: readers search from the segment's start. The segment is scanned, the entries are collected in memory.
//  2. The .index is removed, durably. Both indexes are written and synced, then the directory; readers use them again.
//     Recovery: a segment without its .index gets its indexes anew.
//
// A trusted segment is never cut: where it can't be read, Open or the read fails with ErrCorrupt. Where the owner knows what a clean
// shutdown left, and it isn't there, Open fails with ErrLost, before it changes anything. A segment of message format 0 or 1 is
// refused with ErrUnsupportedMagic.
package log
