// Package groupcoordinator is the state machine of one partition of __consumer_offsets: consumer groups of the classic
// protocol and the offsets that groups commit, plain and within transactions.
//
// # What is kept where
//
// Hard state is the fold of the partition's records, and Replay is its only writer: per group the last GroupMetadata
// record, the committed offsets, and the offsets of transactions that are still open. It is what another machine that
// loads the same log has.
//
// Soft state is the phase between two GroupMetadata records: who has joined, whose answers are parked, which timers
// run. A group with members is recovered as Stable with full session timers, whatever phase it was in; its members find
// out by themselves and join again. An operation changes soft state as it decides; where that must not outlive a
// failed append, it is done in a Next step, which runs only after the append, or undone in Failed.
//
// # Records
//
// All keys begin with an int16 that tells their type. This package writes
//
//	type  key                              value
//	1     group, topic, partition int32    OffsetCommit v4, or v1 for a commit with its own retention time
//	2     group                            GroupMetadata v3
//
//	OffsetCommit v4                        GroupMetadata v3
//	┌──────────────────┬─────────────┐     ┌───────────────────────┬──────────────────────────────┐
//	│ version          │ int16       │     │ version               │ int16                        │
//	│ offset           │ int64       │     │ protocolType          │ string                       │
//	│ leaderEpoch      │ int32       │     │ generation            │ int32                        │
//	│ metadata         │ compact str │     │ protocol, leader      │ nullable strings             │
//	│ commitTimestamp  │ int64 (ms)  │     │ currentStateTimestamp │ int64 (ms)                   │
//	│ tag 0: topic id  │ uuid        │     │ members               │ array of {id, instance,      │
//	└──────────────────┴─────────────┘     │                       │ client id and host, timeouts,│
//	                                       │                       │ subscription, assignment}    │
//	                                       └───────────────────────┴──────────────────────────────┘
//
// and reads every version of both that Kafka ever wrote, and the keys of type 0. Records of other types belong to other
// kinds of groups: they are skipped, and stay in the log.
//
// # Transactions
//
// A record of a transactional batch goes to the pending offsets of its producer. The producer's commit marker makes
// each of them the committed offset of its partition, unless a record further on in the log already did; an abort
// marker drops them.
//
// # Concurrency
//
// A Machine is owned by its shard: one call at a time, no goroutine, no lock, no clock. What it answers is never
// changed afterwards. Callers that wait (for the other members of a rebalance, for the leader's assignment) are tokens
// in the members' state, answered by the operation or the timer that ends the wait.
package groupcoordinator
