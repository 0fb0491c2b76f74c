package differential

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a connection of a script, and what was sent on it that is not answered yet.
type conn struct {
	client *string // client id; nil for null
	sock   net.Conn
	sent   []sent
	last   int32 // correlation id
}

type sent struct {
	req  kmsg.Request // nil for raw bytes
	corr int32
}

// The answers that are none.
var (
	errClosed   = errors.New("closed")
	errNoAnswer = errors.New("no answer")
)

func dial(addr string, client *string) (*conn, error) {
	sock, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{client: client, sock: sock}, nil
}

// header makes a request header, version 1 or 2.
func header(key, version int16, corr int32, client *string, flexible bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	if client == nil {
		b = append(b, 0xff, 0xff)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(len(*client)))
		b = append(b, *client...)
	}
	if flexible {
		b = append(b, 0)
	}
	return b
}

func (c *conn) send(req kmsg.Request) error {
	c.last++
	frame := append(make([]byte, 4), header(req.Key(), req.GetVersion(), c.last, c.client, req.IsFlexible())...)
	frame = req.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if p, ok := req.(*kmsg.ProduceRequest); !ok || p.Acks != 0 {
		c.sent = append(c.sent, sent{req, c.last})
	}
	return c.write(frame)
}

// write may fail because the broker has closed the connection: then the answer shows it.
func (c *conn) write(b []byte) error {
	c.sock.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.sock.Write(b); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the broker does not read: %w", err)
	}
	return nil
}

// receive gives the answer to the oldest request: its response, and how the bytes differ from what the response's own
// encoding would be, if they do. The response is nil for raw bytes, which are shown.
func (c *conn) receive(within time.Duration) (kmsg.Response, string, error) {
	body, err := c.frame(within)
	if err != nil {
		return nil, "", err
	}
	s := c.sent[0]
	c.sent = c.sent[1:]
	if len(body) < 4 {
		return nil, "", fmt.Errorf("a frame of %d bytes", len(body))
	}
	if corr := int32(binary.BigEndian.Uint32(body)); corr != s.corr && s.req != nil {
		return nil, "", fmt.Errorf("correlation id %d, want %d", corr, s.corr)
	}
	body = body[4:]
	if s.req == nil {
		return nil, fmt.Sprintf("%x", body), nil
	}
	return decode(s.req, body)
}

func decode(req kmsg.Request, body []byte) (kmsg.Response, string, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if v := req.GetVersion(); req.Key() == 18 && (v > 5 || v < 0) {
		resp.SetVersion(0) // what brokers answer to versions they don't know
	}
	if resp.IsFlexible() && req.Key() != 18 {
		if body[0] != 0 {
			return nil, "", fmt.Errorf("tags in the header: %x", body)
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, "", fmt.Errorf("%w: %x", err, body)
	}
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		return resp, fmt.Sprintf("bytes %x, want %x", body, again), nil
	}
	return resp, "", nil
}

func (c *conn) frame(within time.Duration) ([]byte, error) {
	c.sock.SetReadDeadline(time.Now().Add(within))
	var size [4]byte
	if _, err := io.ReadFull(c.sock, size[:]); err != nil {
		return nil, kindOfError(err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 64<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c.sock, body)
	return body, kindOfError(err)
}

func kindOfError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errNoAnswer
	}
	return errClosed
}
