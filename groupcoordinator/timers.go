package groupcoordinator

import (
	"container/heap"
	"time"

	"oncelog/coordinator"
)

// timer is a deadline of a group or member. It belongs to one Machine.
//
// Setting a timer that runs already to a later time, as each heartbeat does, changes nothing but the time: the heap
// sorts by key, which may lie before the time, and Tick moves a timer whose key has passed to where it belongs. So a
// timer costs the heap something once per period and not once per heartbeat.
type timer struct {
	at    int64 // milliseconds since 1970; zero while it doesn't run
	key   int64 // ≤ at
	index int   // in the heap, while it runs
	fire  func(now time.Time, out *coordinator.Output)
}

func (t *timer) running() bool { return t.at != 0 }

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].key < h[j].key }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	last := len(old) - 1
	t := old[last]
	old[last] = nil
	*h = old[:last]
	return t
}

// start lets t fire at the given time instead of any other.
func (h *timerHeap) start(t *timer, atMillis int64) {
	switch {
	case !t.running():
		t.at, t.key = atMillis, atMillis
		heap.Push(h, t)
	case atMillis < t.key:
		t.at, t.key = atMillis, atMillis
		heap.Fix(h, t.index)
	default:
		t.at = atMillis
	}
}

// stop keeps t from firing.
func (h *timerHeap) stop(t *timer) {
	if t.running() {
		t.at = 0
		heap.Remove(h, t.index)
	}
}

// due takes the next timer that is due, nil if there is none.
func (h *timerHeap) due(nowMillis int64) *timer {
	for len(*h) > 0 {
		t := (*h)[0]
		if t.key > nowMillis {
			return nil
		}
		if t.at <= nowMillis {
			h.stop(t)
			return t
		}
		t.key = t.at
		heap.Fix(h, 0)
	}
	return nil
}

// next is when due is worth asking again; zero if never.
func (h timerHeap) next() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return time.UnixMilli(h[0].key)
}
