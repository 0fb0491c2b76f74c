package txncoordinator

import (
	"container/heap"
	"time"

	"oncelog/coordinator"
)

// timer is one deadline of a machine.
type timer struct {
	at    time.Time
	fire  coordinator.Step
	index int // in the heap; -1 once it was fired or canceled
}

// timers are a machine's deadlines, the next one first.
type timers struct{ heap timerHeap }

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

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
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

func (ts *timers) add(at time.Time, fire coordinator.Step) *timer {
	t := &timer{at: at, fire: fire}
	heap.Push(&ts.heap, t)
	return t
}

// cancel takes a timer out; nil, fired and canceled ones are no matter.
func (ts *timers) cancel(t *timer) {
	if t != nil && t.index >= 0 {
		heap.Remove(&ts.heap, t.index)
	}
}

// next is when the first timer is due, or the zero time.
func (ts *timers) next() time.Time {
	if len(ts.heap) == 0 {
		return time.Time{}
	}
	return ts.heap[0].at
}

// due takes out what is due at now, in order.
func (ts *timers) due(now time.Time) []coordinator.Step {
	var steps []coordinator.Step
	for len(ts.heap) > 0 && !ts.heap[0].at.After(now) {
		steps = append(steps, heap.Pop(&ts.heap).(*timer).fire)
	}
	return steps
}

// Deadline implements coordinator.Machine.
func (m *Machine) Deadline() time.Time { return m.timers.next() }

// Tick implements coordinator.Machine.
func (m *Machine) Tick(now time.Time) coordinator.Output {
	return coordinator.Output{Next: m.timers.due(now)}
}
