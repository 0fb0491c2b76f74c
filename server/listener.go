package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"oncelog/config"
)

// Accept is tried again after acceptPauseMin when it fails, as without
// descriptors, then after twice as long, up to acceptPauseMax.
const (
	acceptPauseMin = 10 * time.Millisecond
	acceptPauseMax = time.Second
)

// answerGrace is how long a stop waits for answers that come by themselves,
// before it ends what the others wait for.
const answerGrace = 250 * time.Millisecond

// listener is one entry of listeners. Its acceptor runs from serve until the
// socket is closed.
type listener struct {
	name       string
	protocol   string
	controller bool // one of controller.listener.names
	socket     net.Listener
	server     *Server
	closing    sync.Once
}

func (l *listener) close() { l.closing.Do(func() { l.socket.Close() }) }

// accept takes connections until the socket is closed.
func (l *listener) accept() {
	s := l.server
	pause := acceptPauseMin
	for {
		socket, err := l.socket.Accept()
		if err == nil {
			pause = acceptPauseMin
			if !s.admit(l, socket) {
				return
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		s.network.Error("connection not accepted", slog.String("listener", l.name), slog.Any("error", err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		pause = min(2*pause, acceptPauseMax)
	}
}

// admit starts a connection if the limits allow it, after waiting for
// max.connections; the others wait in the backlog meanwhile. It returns false if
// the server stops.
func (s *Server) admit(l *listener, socket net.Conn) bool {
	c := newConn(s, l, socket)
	switch err := s.conns.add(s.ctx, c); {
	case errors.Is(err, errTooManyFromIP):
		s.network.Info("connection refused", slog.String("listener", l.name), slog.String("client", c.remote), slog.Any("error", err))
		s.metrics.connectionsRefused.Inc()
		socket.Close()
		return true
	case err != nil:
		socket.Close()
		return false
	}
	s.metrics.connectionsAccepted.Inc()
	return true
}

var errTooManyFromIP = errors.New("max.connections.per.ip reached")

// connections are the open ones, and their limits.
type connections struct {
	mu       sync.Mutex
	open     map[*conn]struct{} // guarded by mu
	perIP    map[string]int     // guarded by mu: only while there is a limit
	max      int                // guarded by mu
	maxPerIP int                // guarded by mu
	maxOfIP  map[string]int     // guarded by mu, and never changed: for those for whom it is another
	maxIdle  time.Duration      // guarded by mu; 0 for ever
	closed   bool               // guarded by mu: no more
	room     chan struct{}      // capacity 1: a connection has gone, or the limits have changed
	watch    *time.Timer        // guarded by mu: closes idle connections; nil while there are none

	running  sync.WaitGroup
	draining chan struct{} // closed when the server answers what it has and takes no more
}

func (cs *connections) init() {
	cs.open = make(map[*conn]struct{})
	cs.perIP = make(map[string]int)
	cs.room = make(chan struct{}, 1)
	cs.draining = make(chan struct{})
}

// limit takes the limits from the configuration.
func (cs *connections) limit(cfg *config.Broker) {
	overrides := connectionOverrides(cfg.String("max.connections.per.ip.overrides"))
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.maxOfIP = overrides
	cs.max = int(min(cfg.Int("max.connections"), math.MaxInt32))
	cs.maxPerIP = int(min(cfg.Int("max.connections.per.ip"), math.MaxInt32))
	cs.maxIdle = time.Duration(max(cfg.Int("connections.max.idle.ms"), 0)) * time.Millisecond
	cs.wakeLocked()
}

// resolveWait bounds how long the names in max.connections.per.ip.overrides are looked up.
const resolveWait = 2 * time.Second

// connectionOverrides reads max.connections.per.ip.overrides: limits by address. Entries that can't be read, and names that nobody
// knows, are left out.
func connectionOverrides(text string) map[string]int {
	limits := make(map[string]int)
	ctx, cancel := context.WithTimeout(context.Background(), resolveWait)
	defer cancel()
	for _, entry := range strings.Split(text, ",") {
		colon := strings.LastIndexByte(entry, ':')
		if colon < 0 {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(entry[colon+1:]), 10, 32)
		if err != nil {
			continue
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.TrimSpace(entry[:colon]))
		if err != nil {
			continue
		}
		for _, a := range addresses {
			limits[a.Unmap().String()] = int(limit)
		}
	}
	return limits
}

// limitOfLocked is how many connections an address may have.
func (cs *connections) limitOfLocked(ip string) int {
	if limit, ok := cs.maxOfIP[ip]; ok {
		return limit
	}
	return cs.maxPerIP
}

func (cs *connections) wakeLocked() {
	select {
	case cs.room <- struct{}{}:
	default:
	}
}

// add counts c in and starts it.
func (cs *connections) add(ctx context.Context, c *conn) error {
	for {
		cs.mu.Lock()
		switch {
		case cs.closed:
			cs.mu.Unlock()
			return errServerClosed
		case cs.perIP[c.ip] >= cs.limitOfLocked(c.ip):
			cs.mu.Unlock()
			return errTooManyFromIP
		case len(cs.open) < cs.max:
			cs.open[c] = struct{}{}
			cs.perIP[c.ip]++
			cs.running.Add(1)
			if cs.watch == nil && cs.maxIdle > 0 {
				cs.watch = time.AfterFunc(cs.maxIdle, cs.closeIdle)
			}
			if len(cs.open) < cs.max {
				cs.wakeLocked() // one token may stand for several places
			}
			cs.mu.Unlock()
			go func() {
				defer cs.running.Done()
				defer cs.remove(c)
				c.run()
			}()
			return nil
		}
		cs.mu.Unlock()
		select {
		case <-cs.room:
		case <-cs.draining:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (cs *connections) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c)
	if cs.perIP[c.ip]--; cs.perIP[c.ip] <= 0 {
		delete(cs.perIP, c.ip)
	}
	if len(cs.open) == 0 && cs.watch != nil {
		cs.watch.Stop()
		cs.watch = nil
	}
	cs.wakeLocked()
}

func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// closeIdle closes the connections on which nothing has moved for as long as
// connections.max.idle.ms, and comes again when the next could be due.
func (cs *connections) closeIdle() {
	now := time.Now()
	var idle []*conn
	cs.mu.Lock()
	next := cs.maxIdle
	for c := range cs.open {
		if rest := cs.maxIdle - c.idleFor(now); rest <= 0 {
			idle = append(idle, c)
		} else {
			next = min(next, rest)
		}
	}
	// Not for every connection on its own: with many of them one is due all the time.
	next = max(next, cs.maxIdle/64)
	if cs.watch != nil {
		if cs.maxIdle > 0 {
			cs.watch.Reset(next)
		} else {
			cs.watch = nil
		}
	}
	cs.mu.Unlock()
	for _, c := range idle {
		c.server.network.Debug("idle connection closed", slog.String("client", c.remote))
		c.server.metrics.connectionsIdle.Inc()
		c.socket.Close()
	}
}

// relieve closes the connections whose requests stand still while others wait for
// the memory that they hold; if there are none, the one that has been sending its
// request for longest.
func (cs *connections) relieve() {
	now := time.Since(epochStart)
	var stalled []*conn
	var slowest *conn
	first := int64(math.MaxInt64)
	cs.mu.Lock()
	for c := range cs.open {
		if c.stalls(now) {
			stalled = append(stalled, c)
		} else if began := c.frames.began.Load(); began > 0 && began < first && !c.frames.waiting.Load() {
			slowest, first = c, began
		}
	}
	cs.mu.Unlock()
	if len(stalled) == 0 && slowest != nil {
		stalled = append(stalled, slowest)
	}
	for _, c := range stalled {
		c.server.network.Warn("connection closed", slog.String("listener", c.listener.name), slog.String("client", c.remote),
			slog.String("reason", "its requests hold memory that others wait for"))
		c.socket.Close()
	}
}

// serve starts the acceptors.
func (s *Server) serve(context.Context) error {
	s.conns.limit(s.cfg())
	for _, l := range s.listeners {
		s.running.Go(l.accept)
	}
	return nil
}

// stopServing stops accepting and reading, and gives what is being answered a
// moment.
func (s *Server) stopServing(ctx context.Context) error {
	for _, l := range s.listeners {
		l.close()
	}
	s.conns.drain()
	grace, cancel := context.WithTimeout(ctx, answerGrace)
	defer cancel()
	s.conns.wait(grace)
	return nil
}

// awaitAnswers waits for the connections to end, whose requests wait for
// nothing any more, and closes those that don't.
func (s *Server) awaitAnswers(ctx context.Context) error {
	s.conns.wait(ctx)
	s.cancel()
	s.conns.abort()
	s.conns.running.Wait()
	s.running.Wait()
	return nil
}

// drain makes readers stop where they are. Each connection ends when it has
// written its answers.
func (cs *connections) drain() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	close(cs.draining)
	for c := range cs.open {
		c.socket.SetReadDeadline(time.Unix(1, 0))
	}
	if cs.watch != nil {
		cs.watch.Stop()
		cs.watch = nil
	}
}

// wait returns when no connection is open any more, or ctx ends.
func (cs *connections) wait(ctx context.Context) {
	for cs.count() > 0 {
		select {
		case <-cs.room:
		case <-ctx.Done():
			return
		}
	}
}

// abort closes all connections.
func (cs *connections) abort() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		c.socket.Close()
	}
}
