package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memory bounds what all requests together hold (queued.max.request.bytes). A
// request holds what has arrived of it, not what its size field claims, so a
// reader takes more with each piece that it reads, and a reader that gets none
// waits and leaves the rest in the socket.
//
// Half-read requests that hold everything would wait for each other for ever.
// Therefore one of those that wait may be the finisher, which takes beyond the
// limit what its request still needs. Whoever reads for the finisher sees that
// it keeps moving (see frameReader.body).
//
// Requests that stand still, of peers that send no more or don't read their
// answers, would keep everybody else waiting: when nothing was given back for
// memoryPatience while somebody waits, relieve is called.
type memory struct {
	limit   int64  // immutable
	relieve func() // immutable; nil: nobody can help

	mu       sync.Mutex
	used     int64           // guarded by mu; above limit by no more than the finisher's request
	given    time.Time       // guarded by mu: when memory was given back last, or relieve was called
	finisher bool            // guarded by mu: there is one
	waiters  []*memoryWaiter // guarded by mu: first come, first served
}

type memoryWaiter struct {
	n        int64
	partial  bool
	granted  chan struct{} // closed once n has been taken
	finisher bool          // written before granted is closed
}

// memoryPatience is for how long nothing may be given back while somebody waits.
const memoryPatience = 10 * time.Second

var errServerClosed = errors.New("server stops")

func newMemory(limit int64) *memory { return &memory{limit: limit} }

// take takes n bytes, and waits for them if it must. partial tells that the
// request holds memory already: only such a one can be made the finisher, which
// then has to call give with finisher set.
func (m *memory) take(ctx context.Context, n int64, partial bool) (finisher bool, err error) {
	m.mu.Lock()
	if len(m.waiters) == 0 && (m.used+n <= m.limit || m.used == 0) {
		m.used += n
		m.mu.Unlock()
		return false, nil
	}
	w := &memoryWaiter{n: n, partial: partial, granted: make(chan struct{})}
	m.waiters = append(m.waiters, w)
	m.grantLocked()
	m.mu.Unlock()
	if m.await(ctx, w) {
		return w.finisher, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, other := range m.waiters {
		if other == w {
			m.waiters = append(m.waiters[:i], m.waiters[i+1:]...)
			m.grantLocked()
			return false, errServerClosed
		}
	}
	m.giveLocked(n, w.finisher) // granted meanwhile
	return false, errServerClosed
}

// await tells whether w was granted before ctx ended. Whoever waits sees to it that
// the others don't hold what they hold for ever.
func (m *memory) await(ctx context.Context, w *memoryWaiter) bool {
	timer := time.NewTimer(memoryPatience)
	defer timer.Stop()
	for {
		select {
		case <-w.granted:
			return true
		case <-ctx.Done():
			return false
		case now := <-timer.C:
			if m.stuck(now) {
				m.relieve()
			}
			timer.Reset(memoryPatience)
		}
	}
}

// stuck tells whether nothing was given back for memoryPatience; once for each such time.
func (m *memory) stuck(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.relieve == nil || now.Sub(m.given) < memoryPatience {
		return false
	}
	m.given = now
	return true
}

// tryTake takes n bytes if that leaves half of the memory free: for what may
// never arrive.
func (m *memory) tryTake(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiters) > 0 || m.used+n > m.limit/2 {
		return false
	}
	m.used += n
	return true
}

// overdraw takes n bytes for the finisher.
func (m *memory) overdraw(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used += n
}

// give gives n bytes back, and the place of the finisher if its request is whole.
func (m *memory) give(n int64, finisher bool) {
	if n == 0 && !finisher {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveLocked(n, finisher)
}

func (m *memory) giveLocked(n int64, finisher bool) {
	m.used -= n
	if n > 0 {
		m.given = time.Now()
	}
	if finisher {
		m.finisher = false
	}
	m.grantLocked()
}

// grantLocked serves the waiters in order as long as there is memory, and
// then makes the first that holds some the finisher if there is none.
func (m *memory) grantLocked() {
	for len(m.waiters) > 0 {
		w := m.waiters[0]
		if m.used+w.n > m.limit && m.used != 0 {
			break
		}
		m.used += w.n
		m.waiters = m.waiters[1:]
		close(w.granted)
	}
	if m.finisher {
		return
	}
	for i, w := range m.waiters {
		if w.partial {
			m.finisher, w.finisher = true, true
			m.used += w.n
			m.waiters = append(m.waiters[:i], m.waiters[i+1:]...)
			close(w.granted)
			return
		}
	}
}

// inUse is what requests hold now, in bytes.
func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
