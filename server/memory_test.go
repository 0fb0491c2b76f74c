package server

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
		socket, peer := net.Pipe()
		defer peer.Close()
		m := newMemory(10_000)
		r := &frameReader{conn: socket, memory: m, maxBytes: 1 << 20, active: func(int) {}, in: make([]byte, readBufferSize), first: true}
		go peer.Write(append([]byte{0, 0, 0xff, 0}, make([]byte, 12_000)...))
		begin := time.Now()
		_, err := r.next(t.Context())
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != finisherPatience {
			t.Errorf("ended after %v: %v", time.Since(begin), err)
		}
		if m.inUse() != 0 || m.finisher {
			t.Errorf("%d bytes are held, finisher %v", m.inUse(), m.finisher)
		}
	})
}

// What may never arrive gets no more than half, and nothing while somebody waits.
func TestTryTakeLeavesHalf(t *testing.T) {
	m := newMemory(100)
	if m.tryTake(51) || !m.tryTake(50) || m.tryTake(1) {
		t.Errorf("%d of 100 bytes are held", m.inUse())
	}
	m.give(50, false)
	if m.inUse() != 0 {
		t.Errorf("%d bytes are held", m.inUse())
	}
}
