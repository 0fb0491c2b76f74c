package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

const (
	// maxPipelined is how many requests of a connection may wait for their
	// answers. The reader stops reading when there are more; clients have 5 or so.
	maxPipelined = 64

	// largeHeld is what a request that waits may hold when memory is short.
	largeHeld = 1 << 20

	// flushBytes is how much of ready answers is collected for one write.
	flushBytes = 64 << 10
)

// conn is one connection. Its reader is the goroutine of run; the writer is
// started by the first request that has to wait. Whoever sees inflight at zero
// from the reader's side, and whoever it counts for on the writer's, owns out.
type conn struct {
	// Immutable.
	server   *Server
	listener *listener
	socket   net.Conn
	raw      syscall.RawConn // for sendfile; nil if the socket has no descriptor
	remote   string
	ip       string
	ctx      context.Context // ends with the connection
	cancel   context.CancelFunc

	// Owned by the reader.
	frames  frameReader
	queue   chan queued   // capacity maxPipelined; nil before the writer is started. Only the reader sends, and closes it
	writing chan struct{} // closed when the writer has ended

	ahead    int             // requests to come of a client that doesn't wait for its answers; owned by the reader
	software *clientSoftware // nil until the client has said what it is; owned by the reader

	out      *buffer      // encoded answers on their way out; nil if there are none
	inflight atomic.Int32 // requests that the writer has not done with
	working  atomic.Int32 // requests that are handled or waited for
	sending  atomic.Bool  // a write is on its way
	active   atomic.Int64 // when bytes moved last, or a write began, in nanoseconds since epochStart
}

// clientSoftware is what a client says that it is, in ApiVersions (KIP-511).
type clientSoftware struct{ name, version string }

// epochStart is what times without a date are counted from; the difference is
// monotonic.
var epochStart = time.Now()

// queued is a request whose answer is not out yet.
type queued struct {
	row         *api
	version     int16
	correlation int32
	received    time.Time
	request     *request
	frame       frame
	pending     pending
}

func newConn(s *Server, l *listener, socket net.Conn) *conn {
	c := &conn{server: s, listener: l, socket: socket, remote: socket.RemoteAddr().String()}
	c.ip, _ = splitAddr(socket.RemoteAddr())
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	if sc, ok := socket.(*net.TCPConn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.frames = frameReader{
		conn:     socket,
		memory:   s.memory,
		maxBytes: s.static.Int("socket.request.max.bytes"),
		active:   c.moved,
		place:    place{room: s.large},
		first:    true,
	}
	c.active.Store(int64(time.Since(epochStart)))
	return c
}

// moved notes that n bytes have been read, or that the peer was kept waiting so far.
func (c *conn) moved(n int) {
	c.active.Store(int64(time.Since(epochStart)))
	c.server.metrics.bytesRead.Add(float64(n))
}

// idleFor is for how long nothing has moved. Who waits for an answer is not idle,
// who does not read one is.
func (c *conn) idleFor(now time.Time) time.Duration {
	if c.working.Load() > 0 && !c.sending.Load() {
		return 0
	}
	return now.Sub(epochStart) - time.Duration(c.active.Load())
}

// stalls tells whether the connection holds memory, and nothing has moved for
// memoryPatience: its peer has sent a part of a request, or doesn't read, or has
// it wait with a large request.
func (c *conn) stalls(now time.Duration) bool {
	held := c.frames.held.Load()
	if held == 0 || c.frames.waiting.Load() || now-time.Duration(c.active.Load()) < memoryPatience {
		return false
	}
	return c.frames.began.Load() > 0 || c.sending.Load() || held >= largeHeld
}

// run is the reader's life, and that of the connection.
func (c *conn) run() {
	in := newBuffer(readBufferSize)
	defer in.free()
	c.frames.in = in.b[:readBufferSize]
	err := c.read()
	if c.inflight.Load() == 0 && err != errHangup {
		c.flush()
	}
	if err != nil {
		c.cancel() // whoever waits for an answer waits for nothing
		c.logEnd(err)
	}
	if c.queue != nil {
		close(c.queue)
		<-c.writing
	}
	c.cancel()
	c.socket.Close()
}

// errHangup ends a connection on purpose.
var errHangup = errors.New("connection closed by the broker")

// logEnd says why a connection has ended, if it isn't the usual way.
func (c *conn) logEnd(err error) {
	if foreign, ok := errors.AsType[*protocolError](err); ok {
		c.server.metrics.connectionsBad.Inc()
		c.server.network.Warn("connection closed", slog.String("listener", c.listener.name), slog.String("client", c.remote),
			slog.String("reason", foreign.Error()))
		return
	}
	c.server.network.Debug("connection ended", slog.String("client", c.remote), slog.Any("reason", err))
}

// read serves requests until the connection ends. It returns nil if what is
// queued shall still be answered. A panic outside of handlers, of a decoder for
// instance, ends this connection alone.
func (c *conn) read() (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			c.server.metrics.panics.Inc()
			c.server.log.Error("connection panicked", slog.String("client", c.remote), slog.Any("panic", fault),
				slog.String("stack", string(debug.Stack())))
			err = errHangup
		}
	}()
	defer c.frames.place.leave()
	for {
		if !c.frames.whole() {
			if err := c.flushIdle(); err != nil {
				return err
			}
		}
		select {
		case <-c.server.conns.draining:
			return nil
		default:
		}
		fr, err := c.frames.next(c.ctx)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && c.draining() {
				return nil
			}
			return err
		}
		if err := c.serve(fr); err != nil {
			return err
		}
		c.frames.place.leave()
	}
}

func (c *conn) draining() bool {
	select {
	case <-c.server.conns.draining:
		return true
	default:
		return false
	}
}

// flushIdle writes what the reader has held back. If the writer is at work there
// is nothing.
func (c *conn) flushIdle() error {
	if c.inflight.Load() > 0 {
		return nil
	}
	return c.flush()
}

// serve handles one request up to its answer or its place in the queue.
func (c *conn) serve(fr frame) error {
	q := queued{frame: fr, received: time.Now()}
	if c.raw != nil {
		c.server.wakeful.request(q.received.Sub(epochStart))
	}
	header, body, err := protocol.ParseRequestHeader(fr.bytes())
	if err != nil {
		c.frames.free(fr)
		return &protocolError{text: fmt.Sprintf("unreadable request header: %v", err)}
	}
	q.version, q.correlation = header.Version, header.CorrelationID
	q.row = c.listener.api(header.Key)
	switch {
	case q.row == nil:
		c.frames.free(fr)
		return &protocolError{text: fmt.Sprintf("API key %d is not served", header.Key)}
	case header.Version >= q.row.min && header.Version <= q.row.max:
	case header.Key == apiVersionsKey:
		q.version = 0
		q.request = &request{header: header, conn: c, received: q.received}
		q.pending = answer(unsupportedApiVersions())
		c.working.Add(1)
		return c.reply(q)
	default:
		c.frames.free(fr)
		return &protocolError{text: fmt.Sprintf("%s v%d is not served", kmsg.NameForKey(header.Key), header.Version)}
	}
	if header.Key != produceKey { // whose records are not copied
		if err := c.frames.charge(c.ctx, &fr); err != nil {
			c.frames.free(fr)
			return err
		}
		q.frame = fr
	}
	parsed, err := protocol.ParseRequest(header, body)
	if err != nil {
		c.frames.free(fr)
		return &protocolError{text: fmt.Sprintf("unreadable %s v%d: %v", kmsg.NameForKey(header.Key), header.Version, err)}
	}
	q.request = &request{header: header, body: parsed, conn: c, received: q.received}
	if q.row.pace == slow {
		if err := c.flushIdle(); err != nil {
			c.frames.free(fr)
			return err
		}
	}
	c.working.Add(1)
	q.pending = c.handle(q)
	return c.reply(q)
}

// handle runs the ordered part of a request.
func (c *conn) handle(q queued) (p pending) {
	defer func() {
		if fault := recover(); fault != nil {
			p = c.panicked(q, fault)
		}
	}()
	return q.row.handle(c.server, q.request)
}

// await runs the rest of it.
func (c *conn) await(q queued) (p pending) {
	defer func() {
		if fault := recover(); fault != nil {
			p = c.panicked(q, fault)
		}
	}()
	return pending{response: q.pending.wait(c.ctx), closing: q.pending.closing}
}

// panicked is the answer to a request whose handler met a broken invariant. The
// connection ends with it.
func (c *conn) panicked(q queued, fault any) pending {
	c.server.logPanic(q.request, fault)
	return pending{response: refusal(q.request.body, kerr.UnknownServerError), closing: true}
}

func (s *Server) logPanic(r *request, fault any) {
	s.metrics.panics.Inc()
	s.log.Error("request handler panicked", slog.String("api", kmsg.NameForKey(r.header.Key)), slog.Int("version", int(r.header.Version)),
		slog.Any("panic", fault), slog.String("stack", string(debug.Stack())))
}

// reply answers at once if the answer is there and no other is waited for, else
// it queues the request for the writer.
func (c *conn) reply(q queued) error {
	p := q.pending
	if c.inflight.Load() == 0 && p.wait == nil {
		if err := c.encode(q); err != nil {
			return err
		}
		if p.closing {
			c.flush()
			return errHangup
		}
		return nil
	}
	if err := c.flushIdle(); err != nil {
		c.done(q)
		return err
	}
	if c.queue == nil {
		c.queue, c.writing = make(chan queued, maxPipelined), make(chan struct{})
		go c.write()
	}
	c.inflight.Add(1)
	if q.row.key == fetchKey && p.wait != nil { // it may wait for long, and has copied what it was asked
		c.frames.free(q.frame)
		q.frame = frame{}
	}
	select {
	case c.queue <- q:
		return nil
	case <-c.ctx.Done():
		c.inflight.Add(-1)
		c.done(q)
		return errHangup
	}
}

// aloneFor is how long a connection must have been the only one whose requests waited for a disk before its reader does so itself: blocked in the
// system call it keeps a processor from the others, so that they might not even be heard.
const aloneFor = 100 * time.Millisecond

// manyAhead is for how many requests a client is expected to send them without waiting for answers, after it has done so.
const manyAhead = 256

// syncsAlone tells the reader whether nothing else is to be done until the client has the answer to the request that is handled, as far as can be
// known: not on this connection, and no other has waited for a disk for a while. Then the reader may wait itself for the disk.
func (c *conn) syncsAlone(now time.Time) bool {
	if c.ahead > 0 {
		c.ahead--
		return false
	}
	s := c.server
	return s.lastSync.Load() == c && now.Sub(epochStart)-time.Duration(s.lastSyncSince.Load()) > aloneFor && c.inflight.Load() == 0 && c.out == nil && !c.frames.whole()
}

// lookAhead is called for a request that waits for a disk. If the reader has done that, a client that has sent the next request meanwhile was kept
// waiting for nothing.
func (c *conn) lookAhead(waited bool) {
	s := c.server
	s.wakeful.waited()
	if s.lastSync.Load() != c {
		s.lastSyncSince.Store(int64(time.Since(epochStart)))
		s.lastSync.Store(c)
	}
	if waited && c.readable() {
		c.ahead = manyAhead
	}
}

// done gives back what a request holds.
func (c *conn) done(q queued) {
	c.working.Add(-1)
	if framed, ok := q.pending.response.(framedResponse); ok {
		framed.release()
	}
	c.frames.free(q.frame)
}

// write is the writer's life: it waits for the answers in the order of the queue.
func (c *conn) write() {
	defer close(c.writing)
	for q := range c.queue {
		if c.ctx.Err() != nil {
			c.done(q)
		} else if err := c.writeNext(q); err != nil {
			c.cancel()
			c.socket.Close() // the reader sees it and ends
		}
		c.inflight.Add(-1)
	}
}

// writeNext waits for one answer and writes it, unless another one that may
// follow at once can go with it.
func (c *conn) writeNext(q queued) error {
	if q.pending.wait != nil {
		if err := c.flush(); err != nil {
			c.done(q)
			return err
		}
		q.pending = c.await(q)
		if c.ctx.Err() != nil {
			c.done(q)
			return c.ctx.Err()
		}
	}
	closing := q.pending.closing
	if err := c.encode(q); err != nil {
		return err
	}
	if closing || len(c.queue) == 0 {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if closing {
		return errHangup
	}
	return nil
}

// encode puts an answer behind those that are on their way out, and gives back
// what its request holds.
func (c *conn) encode(q queued) (err error) {
	defer c.done(q)
	defer func() {
		if fault := recover(); fault != nil {
			c.server.logPanic(q.request, fault)
			err = errHangup
		}
	}()
	c.server.metrics.served(q.row, time.Since(q.received))
	if c.server.loggers.enabled(logRequests, slog.LevelDebug) {
		c.logRequest(q)
	}
	resp := q.pending.response
	if resp == nil {
		return nil
	}
	if framed, ok := resp.(framedResponse); ok {
		return framed.writeFrame(c, q.correlation)
	}
	resp.SetVersion(q.version)
	if c.out == nil {
		c.out = newBuffer(0)
	}
	c.out.b = protocol.AppendResponse(c.out.b, q.correlation, resp)
	if len(c.out.b) >= flushBytes {
		return c.flush()
	}
	return nil
}

// flush writes the answers that have been encoded.
func (c *conn) flush() error {
	if c.out == nil {
		return nil
	}
	out := c.out
	c.out = nil
	defer out.free()
	return c.send(out.b)
}

// send writes b.
func (c *conn) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.beginSending()
	n, err := c.socket.Write(b)
	c.sent(n)
	c.sending.Store(false)
	return err
}

// beginSending notes that a write begins, which may hang.
func (c *conn) beginSending() {
	c.active.Store(int64(time.Since(epochStart)))
	c.sending.Store(true)
}

// sent notes that n bytes have been written.
func (c *conn) sent(n int) {
	c.active.Store(int64(time.Since(epochStart)))
	c.server.metrics.bytesWritten.Add(float64(n))
}

// framedResponse is an answer that writes itself, because it is not all in
// memory.
type framedResponse interface {
	kmsg.Response
	// appendBody appends the answer without size and header.
	appendBody(dst []byte) ([]byte, error)
	// writeFrame writes the answer, or puts it behind c.out if it is small. It
	// does not release it.
	writeFrame(c *conn, correlation int32) error
	// release gives back what the answer holds; exactly once.
	release()
}
