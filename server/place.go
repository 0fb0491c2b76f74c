package server

import (
	"context"
	"sync"
	"time"
)

const (
	// largeMin is from which size on a request is large.
	largeMin = 256 << 10

	// largeTogether is how many bytes large requests have that are read and handled at a time. More of them take memory and no less time: fresh
	// memory costs more than what was used just before.
	largeTogether = 32 << 20

	// slowStart and slowPerMiB are how long a large request may keep others out. One that its peer sends more slowly goes on without a place.
	slowStart  = 100 * time.Millisecond
	slowPerMiB = 10 * time.Millisecond
)

// place is that of a connection among those whose large requests are read and handled. Only the connection's reader enters and leaves.
type place struct {
	room *memory // of all connections; nil: as much as comes

	mu    sync.Mutex
	held  int64       // guarded by mu: bytes of room
	until time.Time   // guarded by mu: when they are given back at the latest
	timer *time.Timer // guarded by mu: calls expire; nil before the first large request
}

// enter waits until there is room for a request of size bytes, or ctx ends.
func (p *place) enter(ctx context.Context, size int) error {
	if p.room == nil || size < largeMin {
		return nil
	}
	if _, err := p.room.take(ctx, int64(size), false); err != nil {
		return err
	}
	patience := slowStart + time.Duration(size>>20)*slowPerMiB
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.until = int64(size), time.Now().Add(patience)
	if p.timer == nil {
		p.timer = time.AfterFunc(patience, p.expire)
	} else {
		p.timer.Reset(patience)
	}
	return nil
}

// leave gives the place back, if there is one.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked()
}

func (p *place) leaveLocked() {
	if p.held > 0 {
		p.timer.Stop()
		p.room.give(p.held, false)
		p.held = 0
	}
}

// expire ends what has taken long. It may come late, and find the next request.
func (p *place) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !time.Now().Before(p.until) {
		p.leaveLocked()
	}
}
