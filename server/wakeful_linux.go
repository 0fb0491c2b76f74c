package server

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Go process that has nothing to do for a moment sends its monitor thread to sleep, and with the next request wakes it again: several
// system calls and thread switches each time, which a request that comes alone pays for, more than for all else about it. While requests
// come at a rate where that happens, one of the runtime's processors is therefore kept from looking idle: it sleeps in a system call that the
// runtime is not told about. The monitor thread then looks after things every 10 ms. Whatever else there is to do has the other processors.
const (
	// wakefulNap is how long that processor sleeps at a time. After each it is seen whether the others want help.
	wakefulNap = 10 * time.Millisecond
	// wakefulRow is over how many requests the rate is taken, and wakefulSpan how long they may take for it to begin.
	wakefulRow  = 16
	wakefulSpan = wakefulRow * wakefulNap / 2
	// wakefulShare is how much of a nap the process may spend on the others, with one of them less.
	wakefulShare = wakefulNap * 6 / 10
	// wakefulPause is how long it is left alone after that was too much.
	wakefulPause = 100 * time.Millisecond
)

// wakeful keeps a processor from looking idle while single requests come.
type wakeful struct {
	stop     <-chan struct{} // closed when the server stops
	requests atomic.Int64
	since    atomic.Int64 // when the last row of requests was full, in nanoseconds since epochStart
	watching atomic.Bool  // its goroutine is there
	blocked  atomic.Bool  // a request waited for a disk
}

// request counts one that came at now, a time since epochStart.
func (w *wakeful) request(now time.Duration) {
	if w.requests.Add(1)%wakefulRow != 0 {
		return
	}
	if span := now - time.Duration(w.since.Swap(int64(now))); span < wakefulSpan && !w.watching.Load() && !w.watching.Swap(true) {
		go w.watch()
	}
}

// waited notes that a request kept a processor in a system call. Each of them is needed then.
func (w *wakeful) waited() {
	if !w.blocked.Load() {
		w.blocked.Store(true)
	}
}

// watch is the life of the goroutine that has the processor, as long as requests come and leave time.
func (w *wakeful) watch() {
	defer w.watching.Store(false)
	spare := func(nap func()) (busy, quiet bool) {
		before, used := w.requests.Load(), cpuTime()
		nap()
		return cpuTime()-used > wakefulShare || w.blocked.Swap(false), w.requests.Load() == before
	}
	busy, quiet := spare(func() { w.pause(wakefulNap) })
	for !busy && !quiet && runtime.GOMAXPROCS(0) > 1 {
		busy, quiet = spare(napUnseen)
	}
	if busy {
		w.pause(wakefulPause)
	}
}

// pause sleeps as everybody does, but not beyond the server's end.
func (w *wakeful) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.stop:
	}
}

// napUnseen sleeps without giving up the processor. What the runtime wants of it, to collect garbage for instance, interrupts the sleep by a signal
// and is done at the next call of a function.
func napUnseen() {
	nap := unix.NsecToTimespec(int64(wakefulNap))
	for sleepUnseen(&nap) == unix.EINTR {
	}
}

// sleepUnseen leaves in nap what is left of it.
//
//go:noinline
func sleepUnseen(nap *unix.Timespec) syscall.Errno {
	_, _, err := unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(nap)), uintptr(unsafe.Pointer(nap)), 0)
	return err
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
