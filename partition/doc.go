// Package partition keeps replicas: what one partition holds and who may see how much of it (Partition), all that lie in one
// log directory (Set), and all of a node (Dirs). A replica is a log and what follows from it: the producers' state (package idempotence), the index of aborted
// transactions (package controlmarkers), and the leader epochs.
//
// # Concurrency
//
// A Partition's mu guards its log's writer side and everything derived from it: one append at a time checks the sequence, gets its
// offset, writes, and is taken into the producers' state. What needs no lock comes before it: checksums, the records of a batch,
// compression. Readers take no part in that: they see a view of four offsets, which each change publishes when it is
// complete, and read the log below it. A Set's map lock comes before a partition's lock, that before its view's, and none is
// held while anybody is waited for. Sync runs beside appends.
//
// # Invariants
//
//   - start <= last stable offset <= high watermark <= end. As in Kafka, DeleteRecords into a batch of an open transaction leaves the last
//     stable offset at that batch's base, below the start.
//   - The producers' state is that of the end: a fold of the log's batches up to there.
//   - A refused append changes nothing.
//
// # Files
//
// A log directory has, besides the partitions' directories, Kafka's own files: meta.properties (cluster, node and directory id), .lock,
// .kafka_cleanshutdown, and the checkpoints of recovery points, log starts and high watermarks. A partition's directory has, besides the log's files,
// partition.metadata (the topic's id), leader-epoch-checkpoint, and per segment `.snapshot` and `.txnindex` files in Kafka's formats. Beside
// each snapshot lies a `.window` file of ours, which Kafka leaves alone: it has what Kafka's format has no room for.
//
// # Crash safety
//
// Creation: a replica is made in memory. Its directory, partition.metadata and first .log follow in the background, and become durable
// with the first append, before its write. A directory that a power failure left without metadata has no records, and is removed
// at the next start. Before a partition takes the name of one that was deleted, the checkpoints forget that one.
//
// Deletion: the directory is renamed to -delete, and removed after file.delete.delay.ms. The new name is durable before the first file in
// it goes, so that a loss of power leaves the partition whole, or what the next start removes.
//
// Append: the write of the batch is the commit point of the process; Sync makes it durable against power failures (Kafka relies on
// replication there, and so do we). With flush.messages=1 the high watermark waits for Sync, and so does every acknowledgement; with
// a larger number that of the append that reaches it. Syncs run in the background, some partitions at once and each for all that was
// appended before it began (syncSoon), so that any number of appends share one. An abort marker's entry in the transaction index follows its write. If it can't be
// written it stays in memory; recovery finds it in the log.
//
// Sync: what the files beside the log lack is written, then those files are synced, then the log, and the recovery point moves. A
// failed fsync takes the partition offline: what the disk has is unknown, and a second fsync would not tell. Without room for the
// other files the log is synced and the recovery point stays.
//
// Advance: besides, the last segment's indexes and a snapshot of the producers at the log's end are written and synced, so that a recovery has
// to read nothing below. It is done in the background, where most has been appended since the last time, before a log directory has more than
// log.recovery.max.bytes to read again (clients wait for a disk that doesn't keep up), and is followed by the checkpoint of recovery points. The newest two of these snapshots within segments are kept.
//
// Leader epochs: an epoch is in the batches, so its line in leader-epoch-checkpoint may come later: it is written, durably, before the
// recovery point moves over the epoch's begin, and at a stop.
//
// Roll: a snapshot of the producers is written for the new segment's base. It is synced, as the transaction index is, before the recovery point
// moves over it, so recovery finds it whole. A damaged one is seen by its checksum; the next older one and a longer replay do the same.
//
// Stop: snapshots at the end, everything synced, checkpoints, and last the marker, which is there only if all went well. The next start
// takes the marker away durably before it changes anything else.
//
// Start after a crash: the log scans what lies behind the recovery point and cuts off a torn end. The producers' state begins with the newest snapshot
// that the recovery point vouches for, and follows the scan, batch by batch: that gives the state, what the transaction indexes and the leader
// epochs lack, and a snapshot at the end of each segment. What lies below the recovery point stays as it is. Start after a clean stop: nothing is read but
// what names and sizes tell; the producers' state is loaded when it is first needed.
//
// Damage, which no crash explains: a clean stop also writes down which segments it left and how large their files were (segments-checkpoint, ours).
// What the next start finds to be missing or shorter takes the partition offline, now and later, until the file damage.txt in its directory,
// which says what is lost, is removed. Indexes, transaction indexes and leader epochs that are missing or can't be right are
// built anew from the log, snapshots are gone without. A directory without a readable partition.metadata is offline until the cluster says which topic it is
// (Create) or that it is none (Stray).
//
// Move to another log directory: see move.go.
//
// Checkpoints: written beside, synced, renamed over the old one, directory synced. One that can't be read counts as
// empty, which costs a longer recovery.
package partition
