// Package crash kills the broker at random moments under transactional load, starts it again, and checks afterwards that
// nothing acknowledged is lost, nothing aborted is seen, and nothing is doubled or torn: not between the partitions of a
// transaction, and not between records and the offsets that were committed with them.
//
//	CRASH_KILLS=50 go test ./tests/crash    the whole; a few kills without it
//	CRASH_SEED=7                            the moments and the load of an earlier run; the seed is in the log of the test
//
// What the clients do meanwhile depends on timing, so a seed repeats a plan, not a run; the verdict does not depend on
// timing: each client knows what it may expect, and the check at the end compares all of it with what is there.
package crash
