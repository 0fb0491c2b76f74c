package protocol

import (
	"math"
)

// CoordinatorPartition returns which of n partitions of a coordinator's topic owns id: Java's String.hashCode
// over the UTF-16 code units of id, made positive as Kafka does (MinInt32 becomes 0), modulo n. n > 0.
func CoordinatorPartition(id string, n int32) int32 {
	hash := javaHash(id)
	switch {
	case hash == math.MinInt32:
		hash = 0
	case hash < 0:
		hash = -hash
	}
	return hash % n
}

func javaHash(s string) int32 {
	var hash int32
	for _, r := range s {
		if r > 0xffff {
			r -= 0x10000
			hash = 31*hash + (0xd800 + r>>10)
			r = 0xdc00 + r&0x3ff
		}
		hash = 31*hash + r
	}
	return hash
}
