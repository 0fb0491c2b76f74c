package partition

import (
	"context"
	"math"
	"sync"
	"time"
)

// throttle bounds bytes per second. It is shared by goroutines.
type throttle struct {
	mu   sync.Mutex
	rate float64   // bytes per second; math.MaxFloat64 for no bound
	free time.Time // when what was asked for so far is paid for
}

// throttleGrain is the shortest pause that is worth it.
const throttleGrain = 10 * time.Millisecond

func (t *throttle) set(bytesPerSecond float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = max(1, bytesPerSecond)
}

// wait waits until so many bytes may be read or written. It returns errStopped when ctx ends.
func (t *throttle) wait(ctx context.Context, bytes int) error {
	pause := t.take(bytes, time.Now())
	if pause < throttleGrain {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errStopped
	}
}

// take accounts for bytes and tells for how long to wait.
func (t *throttle) take(bytes int, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate == 0 || t.rate == math.MaxFloat64 {
		return 0
	}
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(time.Duration(min(float64(bytes)/t.rate*float64(time.Second), float64(time.Hour))))
	return t.free.Sub(now)
}
