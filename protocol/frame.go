package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrame is a frame whose size cannot be.
var ErrFrame = errors.New("invalid frame")

// firstGrow is how much a frame's buffer has before more of the frame than that has arrived, in bytes.
const firstGrow = 16 << 10

// FrameReader reads size-prefixed frames. The zero value accepts none: set Max.
type FrameReader struct {
	Max int32 // most bytes of a frame
	// Grow returns a buffer of at least need bytes of capacity that begins with the bytes of old, which it may recycle. It is called
	// before more bytes are read than the buffer holds, never for more than twice of what has arrived. Its error ends Read. nil means the Go heap.
	Grow func(old []byte, need int) ([]byte, error)
}

// Read reads one frame, without its size prefix, into buf or what Grow gives for it. The frame's memory grows with the bytes that arrive,
// whatever its size claims. io.EOF: the stream ended before the frame began; io.ErrUnexpectedEOF: within it; ErrFrame: its size is
// zero, negative or above Max. buf (or what it became) is returned with an error too.
func (f *FrameReader) Read(r io.Reader, buf []byte) ([]byte, error) {
	buf, err := f.grow(buf[:0], 4)
	if err != nil {
		return buf, err
	}
	prefix := buf[:4]
	if _, err := io.ReadFull(r, prefix); err != nil {
		return buf, err
	}
	size := int(int32(binary.BigEndian.Uint32(prefix)))
	if size <= 0 || size > int(f.Max) {
		return buf, fmt.Errorf("%w: size %d, allowed are 1 to %d%s", ErrFrame, size, f.Max, hint(prefix))
	}
	for n := 0; n < size; {
		if n == cap(buf) || n == 0 {
			if buf, err = f.grow(buf[:n], min(size, max(2*n, firstGrow))); err != nil {
				return buf, err
			}
		}
		end := min(size, cap(buf))
		got, err := io.ReadFull(r, buf[n:end])
		if n += got; err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return buf[:n], err
		}
		buf = buf[:n]
	}
	return buf, nil
}

func (f *FrameReader) grow(buf []byte, need int) ([]byte, error) {
	if cap(buf) >= need {
		return buf, nil
	}
	if f.Grow != nil {
		return f.Grow(buf, need)
	}
	return append(make([]byte, 0, need), buf...), nil
}

// hint says what a stranger on this port speaks.
func hint(prefix []byte) string {
	for _, method := range []string{"GET ", "POST", "PUT ", "HEAD", "OPTI", "CONN", "DELE", "PATC", "PRI "} {
		if string(prefix) == method {
			return "; the bytes look like HTTP"
		}
	}
	if bytes.HasPrefix(prefix, []byte{0x16, 0x03}) {
		return "; the bytes look like a TLS hello"
	}
	return ""
}
