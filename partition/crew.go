package partition

import "sync"

// crew does work in the background, in the order it comes, on a bounded number of goroutines that are there only while there is
// work. The queue has no bound of its own: each partition is in it at most once.
type crew struct {
	limit int // goroutines; not changed after the first add

	mu struct {
		sync.Mutex
		queue   []func()
		workers int
		closed  bool
	}
	running sync.WaitGroup
}

// add has something done. After close nothing is.
func (c *crew) add(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return
	}
	c.mu.queue = append(c.mu.queue, do)
	if c.mu.workers < c.limit {
		c.mu.workers++
		c.running.Go(c.work)
	}
}

func (c *crew) work() {
	for do := c.next(); do != nil; do = c.next() {
		do()
	}
}

// next takes the first in the queue; a worker that finds nothing is no more.
func (c *crew) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.queue) == 0 {
		c.mu.workers--
		c.mu.queue = nil
		return nil
	}
	do := c.mu.queue[0]
	c.mu.queue[0] = nil
	c.mu.queue = c.mu.queue[1:]
	return do
}

// close drops what has not begun, and waits for the rest.
func (c *crew) close() {
	c.mu.Lock()
	c.mu.closed, c.mu.queue = true, nil
	c.mu.Unlock()
	c.running.Wait()
}
