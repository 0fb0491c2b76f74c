package main

import (
	"runtime"
	"testing"
)

// The collector waits for the floor to double, unless the environment says when it runs.
func TestHeapFloor(t *testing.T) {
	next := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC
	}
	for _, test := range []struct {
		gogc, limit string
		raised      bool
	}{{"", "", true}, {"100", "", false}, {"", "64MiB", false}} {
		t.Setenv("GOGC", test.gogc)
		t.Setenv("GOMEMLIMIT", test.limit)
		lower := raiseHeapFloor()
		if got := next(); (got >= 2*heapFloor) != test.raised {
			t.Errorf("GOGC=%q GOMEMLIMIT=%q: the next collection is at %d bytes", test.gogc, test.limit, got)
		}
		lower()
	}
}
