package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// heapFloor is how much of the heap counts as in use from the start, in bytes. The collector runs when the heap has doubled, and that of a
// broker is small: without a floor small requests have it run for every 4 MiB of them, which takes a tenth of the processor time. A higher
// percentage (GOGC) would do the same, but let what large requests leave behind grow with it.
const heapFloor = 16 << 20

// raiseHeapFloor allocates the floor, which is never touched and so is no memory of the machine. The function it returns gives it back. Whoever sets
// GOGC or GOMEMLIMIT knows better.
func raiseHeapFloor() (lower func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	floor := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(floor) }
}

const (
	// heapSpare is how much memory that isn't needed a quiet process keeps, in bytes.
	heapSpare = 8 << 20
	// heapQuiet is how long after a garbage collection without another one a process counts as quiet.
	heapQuiet = 5 * time.Second
)

// trimHeap gives memory back to the machine when a time of much work is over, which the runtime does not: it keeps what the heap may grow to
// before the next collection, that is as much again as is in use. It looks once after the last of a row of collections, and otherwise sleeps.
func trimHeap(quiet time.Duration) (stop func()) {
	var stopped, trimming atomic.Bool
	timer := time.AfterFunc(quiet, func() {
		if spareHeap() > heapSpare {
			trimming.Store(true)
			debug.FreeOSMemory()
		}
	})
	afterCollections(func() (again bool) {
		if !trimming.Swap(false) && !stopped.Load() { // the collection of a trimming is no work
			timer.Reset(quiet)
		}
		return !stopped.Load()
	})
	return func() {
		stopped.Store(true)
		timer.Stop()
	}
}

// afterCollections calls do after each garbage collection, until it doesn't want to be called again.
func afterCollections(do func() (again bool)) {
	runtime.AddCleanup(new([64]byte), func(int) {
		if do() {
			afterCollections(do)
		}
	}, 0)
}

// spareHeap is how much of the heap is resident and free, or was allocated after the last collection and may be garbage, in bytes.
func spareHeap() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return free + objects - min(objects, live)
}
