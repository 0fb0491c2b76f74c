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

	"oncelog/protocol"
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

// Requests that stand still, each too small to be let beyond the bound, don't keep the others out for ever.
func TestRequestsThatStandStillAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(10_000)
		var relieved []time.Duration
		begin := time.Now()
		m.relieve = func() {
			relieved = append(relieved, time.Since(begin))
			m.give(9_000, false)
		}
		if _, err := m.take(t.Context(), 9_000, false); err != nil {
			t.Fatal(err)
		}
		if _, err := m.take(t.Context(), 2_000, false); err != nil {
			t.Fatal(err)
		}
		if len(relieved) != 1 || relieved[0] != memoryPatience {
			t.Errorf("relieved at %v", relieved)
		}
		m.give(2_000, false)
		if used := m.inUse(); used != 0 {
			t.Errorf("%d bytes are held", used)
		}
	})
}

// Which connections stall: those that hold memory and don't move. Who waits for memory, or holds little while it waits for
// an answer, doesn't.
func TestWhoStalls(t *testing.T) {
	late := 2 * memoryPatience
	for _, tt := range []struct {
		name string
		set  func(c *conn)
		want bool
	}{
		{"holds nothing", func(c *conn) { c.frames.began.Store(1) }, false},
		{"in the middle of a request", func(c *conn) { c.frames.held.Store(1); c.frames.began.Store(1) }, true},
		{"it moves", func(c *conn) { c.frames.held.Store(1); c.frames.began.Store(1); c.active.Store(int64(late)) }, false},
		{"waits for memory", func(c *conn) { c.frames.held.Store(1); c.frames.began.Store(1); c.frames.waiting.Store(true) }, false},
		{"doesn't read", func(c *conn) { c.frames.held.Store(1); c.sending.Store(true) }, true},
		{"waits for an answer", func(c *conn) { c.frames.held.Store(largeHeld - 1) }, false},
		{"waits with much", func(c *conn) { c.frames.held.Store(largeHeld) }, true},
	} {
		c := &conn{}
		tt.set(c)
		if got := c.stalls(late); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A fetch that waits gives its request's memory back.
func TestParkedFetchHoldsNoMemory(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	req := fetchRequest(12, "t", 0, 0)
	req.MaxWaitMillis, req.MinBytes = 60_000, 1
	c.write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	waitFor(t, "the fetch to wait", func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		for c := range s.conns.open {
			return c.inflight.Load() == 1 && c.frames.held.Load() == 0
		}
		return false
	})
	if used := s.memory.inUse(); used != 0 {
		t.Errorf("%d bytes are held", used)
	}
}

// A large request counts with what it may be decoded to, and gives all of it back; one that is too large for the bound is let
// beyond it as long as no other is.
func TestRequestsCountWhatTheyAreDecodedTo(t *testing.T) {
	m := newMemory(1 << 20)
	f := &frameReader{memory: m, active: func(int) {}}
	for range 2 {
		const size = chargeMin / protocol.DecodeFactor * 4
		fr := frame{buffer: newBuffer(size), held: size}
		fr.buffer.b = fr.buffer.b[:size]
		f.held.Add(size)
		m.overdraw(size)
		if err := f.charge(t.Context(), &fr); err != nil {
			t.Fatal(err)
		}
		if want := int64(size * (1 + protocol.DecodeFactor)); m.inUse() != want || f.held.Load() != want || !fr.finisher {
			t.Errorf("%d bytes are held, %d by the connection, finisher %v", m.inUse(), f.held.Load(), fr.finisher)
		}
		f.free(fr)
		if m.inUse() != 0 || f.held.Load() != 0 || m.finisher {
			t.Errorf("%d bytes are still held, %d by the connection, finisher %v", m.inUse(), f.held.Load(), m.finisher)
		}
	}
}
