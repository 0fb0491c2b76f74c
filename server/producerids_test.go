package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// blocks is a controller that gives blocks of ten ids, unless it fails.
type blocks struct {
	mu    sync.Mutex
	next  int64
	asked int
	fail  bool
	delay time.Duration
}

func (b *blocks) allocate(ctx context.Context) (int64, int32, error) {
	select {
	case <-time.After(b.delay):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.fail {
		return 0, 0, kerr.NotController
	}
	b.next += 10
	return b.next - 10, 10, nil
}

func newTestIDs(b *blocks) *producerIDs {
	return newProducerIDs(b.allocate, slog.New(slog.DiscardHandler))
}

// TestProducerIDsAreFetchedAhead: the second block is asked for at 90 % of the first, so nobody ever finds none.
func TestProducerIDsAreFetchedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocks{}
		p := newTestIDs(b)
		defer p.close()
		if err := p.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		for want := range int64(95) {
			id, err := p.tryNext()
			if err != nil || id != want {
				t.Fatalf("id %d, want %d: %v", id, want, err)
			}
			synctest.Wait()
			if wantAsked := 1 + int(want+1+1)/10; b.asked != wantAsked {
				t.Fatalf("after id %d %d blocks were asked for, want %d", id, b.asked, wantAsked)
			}
		}
	})
}

// TestNoProducerIDs: without a block the answer is COORDINATOR_LOAD_IN_PROGRESS, and one goroutine asks until there is one.
func TestNoProducerIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocks{fail: true}
		p := newTestIDs(b)
		defer p.close()
		for range 5 {
			if id, err := p.tryNext(); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
				t.Fatal(id, err)
			}
		}
		if _, err := p.next(t.Context()); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Fatal(err)
		}
		b.mu.Lock()
		if b.asked < 3 || b.asked > 6 { // at 0, 50, 150, 350, 750 ms
			t.Errorf("asked %d times within a second", b.asked)
		}
		b.fail = false
		b.mu.Unlock()
		if id, err := p.next(t.Context()); err != nil || id != 0 {
			t.Errorf("id %d: %v", id, err)
		}
	})
}

// TestProducerIDsAreNeverGivenTwice: many takers, a slow controller, each id once; a block that was given before is refused.
func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocks{delay: time.Millisecond}
		p := newTestIDs(b)
		defer p.close()
		var mu sync.Mutex
		seen := map[int64]bool{}
		var takers sync.WaitGroup
		for range 20 {
			takers.Go(func() {
				for range 20 {
					id, err := p.next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if seen[id] {
						t.Errorf("id %d twice", id)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
		takers.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := p.addLocked(5, 10); err == nil {
			t.Error("an old block was taken")
		}
	})
}
