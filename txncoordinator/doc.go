// Package txncoordinator is the state machine of the transaction coordinator, and the sender of its markers.
//
// A Machine holds the transactional ids of one partition of __transaction_state, and runs on a coordinator.Shard. Each
// transition is one record with the whole new state of its id; a tombstone forgets the id:
//
//	            InitProducerId             first partition or group
//	(unknown) ----------------> Empty ---------------------------------> Ongoing <----+ next transaction
//	                             |  |                                     |    |      |
//	                   expiry    |  | EndTxn v5: abort of nothing  commit |    | abort, timeout, InitProducerId
//	                             v  v                                     v    v      |
//	                           Dead PrepareAbort             PrepareCommit   PrepareAbort
//	                                                               |             |    |
//	                                        every partition marked |             |    |
//	                                                               v             v    |
//	                                                    CompleteCommit  CompleteAbort-+
//
// # Records
//
// Key and value are Kafka's TransactionLogKey version 0 and TransactionLogValue, version 1 (version 0 at
// transaction.version level 0). To Kafka's tagged fields comes one of ours, which Kafka and others skip: tag 100 holds
// lastProducerEpoch as an int16, so that a repeated InitProducerId is still recognized after a restart. It is left out when it is -1.
//
//	value v1: version int16 | producerId int64 | producerEpoch int16 | timeoutMillis int32 | state int8
//	        | topics compact array of {name compact string, partitions compact array of int32, tags}; null in state Empty
//	        | lastUpdateMillis int64 | startMillis int64 | tags
//	tags:     0 previousProducerId int64 (-1) | 1 nextProducerId int64 (-1) | 2 clientTransactionVersion int16 (0)
//	        | 100 lastProducerEpoch int16 (-1)
//
// # Crash safety
//
// The commit point of a transaction is the commit of its PrepareCommit or PrepareAbort record. Markers are effects of
// that record, so none exists before it is committed; they are owed to every partition of the record until the Complete
// record is written. A coordinator that loads a Prepare record sends them all again, with its own, higher epoch; partitions take a repeated
// marker of an ended transaction without effect.
//
// # What differs from Kafka
//
// Kafka answers EndTxn when the Prepare record is committed, and everybody who comes before the Complete record gets
// CONCURRENT_TRANSACTIONS and comes again. Here EndTxn is answered with the Complete record, and whoever comes in
// between waits for it, both within a bound after which Kafka's answer is given. An append that failed leaves nothing pending.
package txncoordinator
