// Package coordinator runs deterministic state machines, each on one partition of an internal topic.
//
// A Host keeps the shards of one topic: one Shard, with its Machine, per partition that this node leads. An operation
// that is given to Shard.Do goes through four steps, and so do the machine's timers:
//
//	decide   the operation looks at the machine and returns an Output: records, replies, effects. It changes no hard state.
//	append   the records are written to the partition as one batch.
//	replay   the machine folds them into its hard state, exactly as it will when it loads the log again.
//	release  replies and effects are let go once all that the operation could see is committed: at once when the high
//	         watermark follows the append, as it does without followers, else when it has moved.
//
// The laws, which the tests are named for:
//
//  1. A machine's state is the fold of its log.
//  2. An append that fails changes no hard state.
//  3. No reply and no effect leaves before what the operation could see is committed. Reads too.
//  4. A shard that lost its epoch drops its machine, and whoever waits gets NOT_COORDINATOR.
//
// Effects are delivered at least once over the life of the log (Recover emits them again), so whoever gets them must
// bear a repetition.
//
// # Concurrency
//
// One goroutine at a time works on a shard: the caller of Do if nobody else is at it, so that an operation on an idle
// shard costs no change of goroutine; what queues up behind it is worked off by a goroutine of the shard that ends
// with the queue. An idle shard owns no goroutine, and at most one timer. Operations start in the order of their Do.
//
// A panic of a machine ends its shard, as the loss of its epoch would; it is logged with its stack and the other shards go on.
package coordinator
