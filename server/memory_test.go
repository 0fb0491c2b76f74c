package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests that together are larger than the bound, each half here, all get
// through: one of them may go beyond it.
func TestHalfReadRequestsDoNotWaitForEachOther(t *testing.T) {
	s := startServer(t, "socket.request.max.bytes=300000", "queued.max.request.bytes=300000")
	dial(t, s).createTopic("t", 1)
	const n = 4
	var clients []*client
	var rest [][]byte
	for range n {
		c := dial(t, s)
		frame := kmsg.NewRequestFormatter().AppendRequest(nil, produceRequest(9, "t", 0, -1, batch(t, 1, 200_000)), 1)
		c.write(frame[:100_000])
		clients, rest = append(clients, c), append(rest, frame[100_000:])
	}
	waitFor(t, "the bound to be reached", func() bool { return s.memory.inUse() > 200_000 })
	// Writes end only when the broker reads, which it does for one after the other.
	for i, c := range clients {
		go c.conn.Write(rest[i])
	}
	for _, c := range clients {
		c.receive(produceRequest(9, "t", 0, -1, nil), 1)
	}
	if used := s.memory.inUse(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

// Memory is given in the order in which it was asked for, and who gives up
// leaves no gap.
func TestMemoryIsFirstComeFirstServed(t *testing.T) {
	m := newMemory(100)
	take := func(ctx context.Context, n int64, partial bool) chan error {
		done := make(chan error, 1)
		before := len(m.waiting())
		go func() {
			_, err := m.take(ctx, n, partial)
			done <- err
		}()
		waitFor(t, "the taker to wait", func() bool { return len(m.waiting()) > before || len(done) > 0 })
		return done
	}
	if _, err := m.take(t.Context(), 80, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := take(ctx, 50, false)
	second := take(t.Context(), 20, false)
	if len(second) > 0 {
		t.Fatal("the second overtook the first")
	}
	cancel()
	if err := <-first; !errors.Is(err, errServerClosed) {
		t.Errorf("the first got %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second got %v", err)
	}
	// Only one is let beyond the limit.
	third, fourth := take(t.Context(), 70, true), take(t.Context(), 70, true)
	if err := <-third; err != nil {
		t.Errorf("the finisher got %v", err)
	}
	if len(fourth) > 0 {
		t.Error("two finishers")
	}
	m.give(70, true)
	if err := <-fourth; err != nil {
		t.Errorf("the next finisher got %v", err)
	}
	m.give(170, true)
	if m.inUse() != 0 {
		t.Errorf("%d bytes are held", m.inUse())
	}
}

func (m *memory) waiting() []*memoryWaiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiters
}

// Who is let beyond the limit must keep moving.
func TestFinisherThatStallsIsClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits as long as the patience is")
	}
	t.Parallel()
	s := startServer(t, "socket.request.max.bytes=300000", "queued.max.request.bytes=300000")
	dial(t, s).createTopic("t", 1)
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, produceRequest(9, "t", 0, -1, batch(t, 1, 200_000)), 1)
	stalled := dial(t, s)
	stalled.write(frame[:150_000])
	waitFor(t, "the first to hold memory", func() bool { return s.memory.inUse() > 100_000 })
	second := dial(t, s)
	second.write(frame[:150_000])
	waitFor(t, "somebody to go beyond the limit", func() bool {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.finisher
	})
	begin := time.Now()
	waitFor(t, "the finisher to be closed", func() bool { return s.conns.count() == 2 })
	if took := time.Since(begin); took < finisherPatience/2 {
		t.Errorf("closed after %v", took)
	}
}
