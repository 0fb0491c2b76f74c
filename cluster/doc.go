// Package cluster is the cluster's metadata: which brokers there are, topics and their partitions, dynamic configs, quotas, credentials, finalized
// features and producer ids. It is a state machine on hashicorp/raft, the immutable Image that the machine yields, and the Controller that decides what is written.
//
// # From a request to an image
//
//	request -> Controller.do -> decider (pure) -> answer, records
//	                                              records -> one raft entry -> fsm.Apply -> Image
//	                                              answer  -> caller, once its records are part of the image
//
// One goroutine decides, while this node leads. It takes all requests that wait, decides each on the image that the ones before it would make, and
// writes what came out as one entry; then it takes the next. A decision changes nothing by itself, so one whose entry is not written has not been
// taken. Whoever is told of success finds it in Image.
//
// Readers use Image and Changed and need nobody's leave: an Image never changes, and one that follows another shares with it what is the same.
// Image.Since tells what is not.
//
// # Terms
//
// An entry holds the raft term in which its records were decided. The machine ignores an entry that was appended in another term: the leader had
// lost its office and got it back, and others may have written in between, so the decision was taken on an image that was not the last. A new
// leader decides after a barrier, when its image holds all that was committed; after any error of a write it does the same again, because what
// became of the entry is not known before.
//
// # A lone voter
//
// A node that is the only voter leads within a millisecond or two and owns no timer that runs: see lone.go. Its log, term and vote are in one
// bbolt file, metadata.db, beside raft's snapshots. A full disk costs the requests that could not be written, with an error that clients try
// again; reads go on, and the node leads again by itself when there is room.
//
// # On disk
//
// The data of a raft entry, and of a snapshot with the index of its image in place of the term:
//
//	| version u8 = 1 | term uvarint | number of records uvarint | records |
//
//	record: | kind u8 | version u8 | length uvarint | payload |
//
// Payloads are in record.go: integers are varints, strings and lists carry their length. A version or kind that is not known is an error, which ends
// the machine: half of the metadata is worse than none. What a bbolt value of the log looks like is told at encodeLog.
//
// Crash safety: an entry is there once the transaction of StoreLogs has been committed (the meta page of bbolt); until then nobody has been told.
// A snapshot is there once raft has renamed its directory; the entries before it are dropped after that. A start reads the newest snapshot
// and folds the entries behind it. Each entry has a CRC, and a store is read whole before it is opened to be written: damage stops the start.
//
// # Invariants
//
//   - The image is the fold of the entries up to its Index, and of nothing else; its snapshot's records make the same image.
//   - Topic ids are never used twice, names are free once their topic is gone.
//   - Producer ids below the image's next one have been given away; a block is committed before any of its ids is used.
//   - A broker's registration in a new life raises the leader epoch of all partitions that it leads, by the replay of its one record.
package cluster
