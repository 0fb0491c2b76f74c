package main

import (
	"runtime"
	"testing"
	"time"
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

// What a time of work leaves goes back to the machine when it has been quiet for a while, and not before.
func TestHeapIsTrimmedWhenQuiet(t *testing.T) {
	const spare = 4 * heapSpare
	defer trimHeap(heapQuiet / 100)()
	work := make([]byte, spare)
	for i := range work {
		work[i] = 1
	}
	runtime.KeepAlive(work)
	runtime.GC() // it is free from here on
	deadline := time.After(2 * heapQuiet)
	for free := spareHeap(); free > heapSpare; free = spareHeap() {
		select {
		case <-time.After(heapQuiet / 500):
		case <-deadline:
			t.Fatalf("%d bytes are not given back", free)
		}
	}
}
