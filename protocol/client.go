package protocol

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrClosed is the answer to requests on a closed Client.
var ErrClosed = errors.New("client closed")

// maxInFlight is how many requests of one Client may wait for answers; further ones wait to be sent.
const maxInFlight = 1024

// Client is one pipelined connection to a broker. Any number of goroutines may call Request at once; requests are
// sent in the order of the calls. One goroutine, the reader, lives until the connection ends; Close waits for it.
type Client struct {
	conn     net.Conn
	clientID string
	slots    chan struct{} // capacity maxInFlight; a full one holds back senders
	sending  chan struct{} // capacity 1: who holds the token writes to conn and owns out and next
	out      []byte
	next     int32
	done     chan struct{} // closed by the reader at its end

	mu      sync.Mutex
	waiting map[int32]chan []byte // by correlation id; capacity 1; nil once err is set; a nil channel: nobody waits any more
	err     error
}

// NewClient takes over conn; the client owns it from here on.
func NewClient(conn net.Conn, clientID string) *Client {
	c := &Client{
		conn:     conn,
		clientID: clientID,
		slots:    make(chan struct{}, maxInFlight),
		sending:  make(chan struct{}, 1),
		done:     make(chan struct{}),
		waiting:  map[int32]chan []byte{},
	}
	go c.read()
	return c
}

// Request sends req at its version (req.GetVersion) and waits for the answer. A request that has no answer (Produce with acks 0) yields an empty response
// once it is sent. When ctx ends while the answer is awaited, only this call ends; when it ends within the sending of
// the request, the connection is closed, as half a request cannot be taken back. After an error of the connection all calls return it.
func (c *Client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := acquire(ctx, c, c.slots); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		defer func() { <-c.slots }()
		_, _, err := c.send(ctx, req, false)
		return resp, err
	}
	id, answer, err := c.send(ctx, req, true)
	if err != nil {
		<-c.slots
		return nil, err
	}
	select {
	case frame, ok := <-answer:
		if !ok {
			return nil, c.failure()
		}
		if err := parseResponse(frame, resp); err != nil {
			return nil, fmt.Errorf("%s v%d response: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
		}
		return resp, nil
	case <-ctx.Done():
		c.abandon(id)
		return nil, ctx.Err()
	}
}

// acquire takes a place in slots.
func acquire(ctx context.Context, c *Client, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.failure()
	}
}

// send writes the request and, if an answer will come, registers who waits for it.
func (c *Client) send(ctx context.Context, req kmsg.Request, answered bool) (int32, chan []byte, error) {
	if err := acquire(ctx, c, c.sending); err != nil {
		return 0, nil, err
	}
	defer func() { <-c.sending }()
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	id := c.next
	c.next = (c.next + 1) & math.MaxInt32
	var answer chan []byte
	if answered {
		answer = make(chan []byte, 1)
	}
	if err := c.register(id, answer); err != nil {
		return 0, nil, err
	}
	c.out = AppendRequest(c.out[:0], id, &c.clientID, req)
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.conn.Write(c.out)
	if cap(c.out) > maxPooled {
		c.out = nil
	}
	if err == nil && !stop() {
		err = ctx.Err() // the deadline is or will be set: nobody could write any more
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		c.fail(fmt.Errorf("connection given up while sending: %w", err))
		return 0, nil, err
	}
	return id, answer, nil
}

func (c *Client) register(id int32, answer chan []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if answer != nil {
		c.waiting[id] = answer
	}
	return nil
}

// abandon lets the answer to id be dropped when it comes.
func (c *Client) abandon(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.waiting[id]; ok {
		c.waiting[id] = nil
	}
}

// fail closes the connection; err is what every call returns from now on, unless there is an earlier one.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	for _, answer := range c.waiting {
		if answer != nil {
			close(answer)
		}
	}
	c.waiting = nil
	_ = c.conn.Close()
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// read is the reader: it hands out answers until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	frames := FrameReader{Max: math.MaxInt32}
	for {
		frame, err := frames.Read(c.conn, nil)
		if err == nil && len(frame) < 4 {
			err = errCutShort
		}
		if err == nil {
			err = c.deliver(frame)
		}
		if err != nil {
			c.fail(fmt.Errorf("connection lost: %w", err))
			return
		}
	}
}

func (c *Client) deliver(frame []byte) error {
	id := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.waiting[id]
	if !ok {
		if c.err != nil {
			return c.err
		}
		return fmt.Errorf("answer to request %d, which nobody made", id)
	}
	delete(c.waiting, id)
	if answer != nil {
		answer <- frame // has room: it is the only answer
	}
	<-c.slots // never waits: the request holds a place
	return nil
}

// Close ends the connection; what waits gets ErrClosed. It may be called more than once.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	<-c.done
	return nil
}
