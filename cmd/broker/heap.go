package main

import (
	"os"
	"runtime"
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
