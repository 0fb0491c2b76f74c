package partition

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// schedule runs things later, on one goroutine, which sleeps as long as nothing is due. Only that goroutine's timer tells
// the time.
type schedule struct {
	mu struct {
		sync.Mutex
		fresh []plan // planned since the goroutine looked, due so long after it does
		plans plans
		seq   int // breaks ties, so that what was planned first runs first
	}
	planned chan struct{} // capacity 1: there are fresh plans; a full one says it already
}

// plan is something to do at a time.
type plan struct {
	delay time.Duration
	at    time.Time
	seq   int
	do    func(now time.Time)
}

// after plans do for when the delay has passed.
func (s *schedule) after(delay time.Duration, do func(now time.Time)) {
	s.mu.Lock()
	s.mu.seq++
	s.mu.fresh = append(s.mu.fresh, plan{delay: delay, seq: s.mu.seq, do: do})
	s.mu.Unlock()
	select {
	case s.planned <- struct{}{}:
	default:
	}
}

// due takes the first plan that is due, or gives how long until the next one is; ok is false if there is none at all.
func (s *schedule) due(now time.Time) (do func(time.Time), wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.fresh {
		p.at = now.Add(p.delay)
		heap.Push(&s.mu.plans, p)
	}
	s.mu.fresh = nil
	if len(s.mu.plans) == 0 {
		return nil, 0, false
	}
	if wait := s.mu.plans[0].at.Sub(now); wait > 0 {
		return nil, wait, true
	}
	return heap.Pop(&s.mu.plans).(plan).do, 0, true
}

// run does what is due until ctx ends.
func (s *schedule) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.planned:
			timer.Reset(0)
		case now := <-timer.C:
			for ctx.Err() == nil {
				do, wait, ok := s.due(now)
				if do == nil {
					if ok {
						timer.Reset(wait)
					}
					break
				}
				do(now)
			}
		}
	}
}

// plans is a heap by time.
type plans []plan

func (p plans) Len() int { return len(p) }
func (p plans) Less(i, j int) bool {
	if p[i].at.Equal(p[j].at) {
		return p[i].seq < p[j].seq
	}
	return p[i].at.Before(p[j].at)
}
func (p plans) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *plans) Push(x any)   { *p = append(*p, x.(plan)) }
func (p *plans) Pop() any {
	old := *p
	last := old[len(old)-1]
	old[len(old)-1] = plan{}
	*p = old[:len(old)-1]
	return last
}

// alarm is something to do some time after the first of any number of changes. Ringing one that is armed costs nothing.
type alarm struct {
	armed atomic.Bool
	delay func() time.Duration
	do    func()
}

func (a *alarm) ring(s *schedule) {
	if a.armed.Load() || a.armed.Swap(true) {
		return
	}
	s.after(a.delay(), func(time.Time) {
		a.armed.Store(false)
		a.do()
	})
}

// millis is a configured number of milliseconds as a duration.
func millis(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
