package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"oncelog/protocol"
)

const (
	// readBufferSize is what a connection reads at once while it waits for a
	// request: most requests are smaller, so they take one system call.
	readBufferSize = 4 << 10

	// maxTrust is the most that is read at once because an earlier request of the
	// connection was as large. One that then sends less than it announced makes us
	// hold that much, but never takes the second half of the memory.
	maxTrust = 32 << 20

	// trustFades is how many smaller requests it takes, about, to forget a large one.
	trustFades = 16

	// chargeMin is from which size on it counts what a request is decoded to.
	chargeMin = 512 << 10

	// finisherPatience is how long a request that holds memory beyond the limit
	// may stand still. Everybody waits for it.
	finisherPatience = 10 * time.Second
)

// frameReader cuts what a connection receives into requests. It is owned by the
// connection's reader.
type frameReader struct {
	conn     net.Conn
	memory   *memory
	maxBytes int64 // socket.request.max.bytes
	active   func(n int)
	place    place

	in         []byte // read, but not yet taken: in[start:end]
	start, end int
	first      bool // nothing has been taken yet
	trust      int  // how much the largest of the last requests brought, at most maxTrust

	// What those see who look for memory.
	held    atomic.Int64 // by the connection's requests
	began   atomic.Int64 // when the request that is being read began, in nanoseconds since epochStart; 0 without one
	waiting atomic.Bool  // for memory
}

// frame is one request as it arrived, without its size. It holds memory until
// it is freed.
type frame struct {
	buffer   *buffer
	held     int64
	finisher bool // of the memory, until it is freed
}

// protocolError is what a peer did that no Kafka client does.
type protocolError struct {
	text string
	hint string // what the peer may be; "" if there is no telling
}

func (e *protocolError) Error() string {
	if e.hint == "" {
		return e.text
	}
	return e.text + ": " + e.hint
}

// next reads one request. The error is io.EOF if the peer closed the connection
// between two, a *protocolError if it does not speak Kafka, or what went wrong.
func (f *frameReader) next(ctx context.Context) (frame, error) {
	if err := f.fill(4); err != nil {
		return frame{}, err
	}
	size := int64(int32(binary.BigEndian.Uint32(f.in[f.start:])))
	if hint := foreignHello(f.in[f.start:f.end]); f.first && hint != "" {
		return frame{}, &protocolError{"not a Kafka request", hint}
	}
	if size <= 0 || size > f.maxBytes {
		return frame{}, &protocolError{text: fmt.Sprintf("request of %d bytes, allowed are 1 to %d (socket.request.max.bytes)", size, f.maxBytes)}
	}
	f.first = false
	f.start += 4
	fr, err := f.body(ctx, int(size))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = &protocolError{text: fmt.Sprintf("connection ended after %d of %d bytes of a request", len(fr.bytes()), size)}
		}
		f.free(fr)
		return frame{}, err
	}
	f.trust = max(min(int(size), maxTrust), f.trust-f.trust/trustFades)
	return fr, nil
}

// whole tells whether the next request has been read already.
func (f *frameReader) whole() bool {
	have := f.in[f.start:f.end]
	return len(have) >= 4 && int64(len(have)-4) >= int64(binary.BigEndian.Uint32(have))
}

// fill reads until n bytes are there that have not been taken.
func (f *frameReader) fill(n int) error {
	if f.start == f.end {
		f.start, f.end = 0, 0
	} else if len(f.in)-f.start < n {
		f.end = copy(f.in, f.in[f.start:f.end])
		f.start = 0
	}
	for f.end-f.start < n {
		m, err := f.conn.Read(f.in[f.end:])
		f.end += m
		f.active(m)
		if err != nil && f.end-f.start < n {
			if f.end > f.start && errors.Is(err, io.EOF) {
				err = &protocolError{text: fmt.Sprintf("connection ended after %d of the 4 bytes of a size", f.end-f.start)}
			}
			return err
		}
	}
	return nil
}

// body reads a request of size bytes. What it allocates grows with what
// arrives. The frame comes back with an error too.
func (f *frameReader) body(ctx context.Context, size int) (fr frame, err error) {
	if err := f.place.enter(ctx, size); err != nil {
		return frame{}, err
	}
	have := min(size, f.end-f.start)
	step := min(size, max(have+readBufferSize, f.trust))
	if !f.memory.tryTake(int64(step)) {
		step = min(size, have+readBufferSize)
		if _, err := f.take(ctx, int64(step), false); err != nil {
			return frame{}, err
		}
	}
	f.held.Add(int64(step))
	fr = frame{buffer: newBuffer(step), held: int64(step)}
	f.began.Store(int64(time.Since(epochStart)))
	defer f.began.Store(0)
	fr.buffer.b = append(fr.buffer.b, f.in[f.start:f.start+have]...)
	f.start += have
	finisher := false
	for len(fr.buffer.b) < size {
		if len(fr.buffer.b) == step {
			step = min(size, 4*step)
			if finisher, err = f.grow(ctx, &fr, step, finisher); err != nil {
				break
			}
		}
		if finisher {
			f.conn.SetReadDeadline(time.Now().Add(finisherPatience))
		}
		n := len(fr.buffer.b)
		m, err2 := f.conn.Read(fr.buffer.b[n:step])
		fr.buffer.b = fr.buffer.b[:n+m]
		f.active(m)
		if err2 != nil && n+m < size {
			err = err2
			break
		}
	}
	if finisher {
		f.conn.SetReadDeadline(time.Time{})
		f.memory.give(0, true)
	}
	return fr, err
}

// grow moves a frame into a buffer of size bytes.
func (f *frameReader) grow(ctx context.Context, fr *frame, size int, finisher bool) (bool, error) {
	more := int64(size) - fr.held
	if finisher {
		f.memory.overdraw(more)
	} else {
		var err error
		if finisher, err = f.take(ctx, more, true); err != nil {
			return false, err
		}
	}
	f.held.Add(more)
	larger := newBuffer(size)
	larger.b = append(larger.b, fr.buffer.b...)
	fr.buffer.free()
	*fr = frame{buffer: larger, held: int64(size)}
	return finisher, nil
}

// take is memory.take.
func (f *frameReader) take(ctx context.Context, n int64, partial bool) (finisher bool, err error) {
	f.waiting.Store(true)
	finisher, err = f.memory.take(ctx, n, partial)
	f.active(0)
	f.waiting.Store(false)
	return finisher, err
}

// charge takes what a request may be decoded to, until its frame is freed. Small ones are not
// worth counting.
func (f *frameReader) charge(ctx context.Context, fr *frame) (err error) {
	more := int64(len(fr.bytes())) * protocol.DecodeFactor
	if more < chargeMin {
		return nil
	}
	if fr.finisher, err = f.take(ctx, more, true); err != nil {
		return err
	}
	fr.held += more
	f.held.Add(more)
	return nil
}

// free gives back what a frame holds.
func (f *frameReader) free(fr frame) {
	fr.buffer.free()
	f.held.Add(-fr.held)
	f.memory.give(fr.held, fr.finisher)
}

func (fr frame) bytes() []byte {
	if fr.buffer == nil {
		return nil
	}
	return fr.buffer.b
}

// foreignHello tells what else than a Kafka client may begin with these bytes.
func foreignHello(b []byte) string {
	switch string(b[:4]) {
	case "GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "PATC", "CONN", "TRAC", "PRI ":
		return "the peer speaks HTTP; metrics and health are on http.listener"
	case "SSH-":
		return "the peer speaks SSH"
	}
	if b[0] == 0x16 && b[1] == 3 && b[2] <= 4 {
		return "the peer wants TLS, and this listener is plaintext; check security.protocol"
	}
	return ""
}
