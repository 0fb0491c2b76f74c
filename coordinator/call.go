package coordinator

import (
	"context"
	"sync"
)

// call is one Do that is not yet answered.
type call struct {
	// next and prev link the unanswered calls of a shard; guarded by its mu.
	next, prev *call

	mu    sync.Mutex
	done  bool          // guarded by mu, like all below; value and err are immutable once it is set
	ready chan struct{} // closed with done; nil while nobody waits
	value any
	err   error
}

// answer sets the answer; the first one stands.
func (c *call) answer(value any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return
	}
	c.value, c.err, c.done = value, err, true
	if c.ready != nil {
		close(c.ready)
	}
}

// Pending is the answer to come of one Do.
type Pending struct{ c *call }

// Ready tells whether Await would return at once.
func (p Pending) Ready() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.done
}

// Await waits for the answer. When ctx ends first its error is returned; the operation goes on, its answer is lost.
func (p Pending) Await(ctx context.Context) (any, error) {
	c := p.c
	c.mu.Lock()
	if !c.done {
		if c.ready == nil {
			c.ready = make(chan struct{})
		}
		ready := c.ready
		c.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	return c.value, c.err
}

// calls is the list of a shard's unanswered calls, in no particular order.
type calls struct{ head *call }

func (l *calls) add(c *call) {
	c.next = l.head
	if l.head != nil {
		l.head.prev = c
	}
	l.head = c
}

// remove takes c out of the list, if it is in it.
func (l *calls) remove(c *call) {
	switch {
	case c.prev != nil:
		c.prev.next = c.next
	case l.head == c:
		l.head = c.next
	default:
		return
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.next, c.prev = nil, nil
}
