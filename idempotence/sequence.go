package idempotence

import "math"

// Sequences count from 0 to math.MaxInt32 and go on with 0. None is -1.
const none = -1

// back is the sequence that lies delta before s.
func back(s, delta int32) int32 {
	if s < delta {
		return math.MaxInt32 - (delta - s) + 1
	}
	return s - delta
}

// follows tells whether a batch that begins with next is in order after one that ended with last.
func follows(last, next int32) bool {
	return int64(next) == int64(last)+1 || next == 0 && last == math.MaxInt32
}
