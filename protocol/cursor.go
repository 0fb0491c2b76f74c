package protocol

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// windowSize is how much of a compressed payload is held decompressed while walking, in bytes.
const windowSize = 64 << 10

// cursor reads the records of a batch: in place where they lie plain, else through a window of decompressed bytes.
// Owned by one goroutine.
type cursor struct {
	buf      []byte // the bytes at hand are buf[pos:end]
	pos, end int
	base     int64   // decompressed bytes before buf[0]
	src      decoder // nil: buf is all there is
}

var windows = sync.Pool{New: func() any {
	b := make([]byte, windowSize)
	return &b
}}

var (
	errPremature = fmt.Errorf("%w: the records end before the batch says", ErrInvalid)
	errStructure = fmt.Errorf("%w: record structure", ErrInvalid)
)

func (b Batch) cursor() (cursor, error) {
	codec := b.Header().Codec()
	payload := b[BatchHeaderLen:]
	if codec == CodecNone {
		return cursor{buf: payload, end: len(payload)}, nil
	}
	d, err := newDecoder(codec, payload)
	if err != nil {
		return cursor{}, err
	}
	return cursor{buf: *windows.Get().(*[]byte), src: d}, nil
}

// close gives back what the cursor borrowed.
func (c *cursor) close() {
	if c.src == nil {
		return
	}
	c.src.free()
	if cap(c.buf) == windowSize {
		b := c.buf[:windowSize]
		windows.Put(&b)
	}
	*c = cursor{}
}

// offset is how many bytes lie before the cursor.
func (c *cursor) offset() int64 { return c.base + int64(c.pos) }

// fill tries to have n bytes at hand; it may grow the window, as bytes arrive. io.EOF: the payload ends before.
func (c *cursor) fill(n int) error {
	if c.end-c.pos >= n {
		return nil
	}
	if c.src == nil {
		return io.EOF
	}
	c.base += int64(c.pos)
	c.end = copy(c.buf, c.buf[c.pos:c.end])
	c.pos = 0
	for c.end < n {
		if c.end == len(c.buf) {
			grown := make([]byte, min(2*len(c.buf), max(n, windowSize)))
			copy(grown, c.buf)
			c.release()
			c.buf = grown
		}
		got, err := c.src.Read(c.buf[c.end:])
		c.end += got
		if err == nil || got > 0 {
			continue
		}
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("%w: %w", ErrDecompress, err)
	}
	return nil
}

// release returns a pooled window that is replaced by a larger one.
func (c *cursor) release() {
	if cap(c.buf) == windowSize {
		b := c.buf
		windows.Put(&b)
	}
}

// varint reads a zig-zag varint of 32 bits.
func (c *cursor) varint() (int32, error) {
	if c.pos < c.end && c.buf[c.pos] < 0x80 {
		u := c.buf[c.pos]
		c.pos++
		return int32(u>>1) ^ -int32(u&1), nil
	}
	if err := c.fill(5); err != nil && err != io.EOF {
		return 0, err
	}
	v, n := Varint(c.buf[c.pos:c.end])
	return v, c.took(n)
}

// varlong reads a zig-zag varint of 64 bits.
func (c *cursor) varlong() (int64, error) {
	if c.pos < c.end && c.buf[c.pos] < 0x80 {
		u := c.buf[c.pos]
		c.pos++
		return int64(u>>1) ^ -int64(u&1), nil
	}
	if err := c.fill(10); err != nil && err != io.EOF {
		return 0, err
	}
	v, n := Varlong(c.buf[c.pos:c.end])
	return v, c.took(n)
}

func (c *cursor) took(n int) error {
	if n > 0 {
		c.pos += n
		return nil
	}
	if n == 0 {
		return errPremature
	}
	return errStructure
}

// skip passes over n bytes.
func (c *cursor) skip(n int64) error {
	for {
		if have := int64(c.end - c.pos); n <= have {
			c.pos += int(n)
			return nil
		} else {
			n -= have
			c.pos = c.end
		}
		if err := c.fill(1); err != nil {
			return premature(err)
		}
	}
}

// copyTo writes the next n bytes to w.
func (c *cursor) copyTo(w io.Writer, n int64) error {
	for n > 0 {
		if err := c.fill(1); err != nil {
			return premature(err)
		}
		part := c.buf[c.pos:min(int64(c.end), int64(c.pos)+n)]
		if _, err := w.Write(part); err != nil {
			return err
		}
		c.pos += len(part)
		n -= int64(len(part))
	}
	return nil
}

// rest reports whether anything is left.
func (c *cursor) rest() (bool, error) {
	err := c.fill(1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

func premature(err error) error {
	if err == io.EOF {
		return errPremature
	}
	return err
}
