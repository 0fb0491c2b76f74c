package server

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// byteConn gives bytes piece by piece.
type byteConn struct {
	net.Conn
	rest  []byte
	piece int
}

func (c *byteConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.rest[:min(c.piece, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}

func (c *byteConn) SetReadDeadline(time.Time) error { return nil }

func readerOf(b []byte, piece int, m *memory) *frameReader {
	return &frameReader{
		conn: &byteConn{rest: b, piece: max(piece, 1)}, memory: m, maxBytes: 1 << 20,
		active: func(int) {}, in: make([]byte, readBufferSize), first: true,
	}
}

// Frames come out as they went in, however the bytes arrive.
func TestFramesAreCutRight(t *testing.T) {
	var sizes = []int{1, 5, 100, readBufferSize - 4, readBufferSize, readBufferSize + 1, 3 * readBufferSize, 70_000, 2, 200_000}
	var in []byte
	for i, n := range sizes {
		in = append(in, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		in = append(in, bytes.Repeat([]byte{byte(i + 1)}, n)...)
	}
	for _, piece := range []int{1, 3, 4095, 4096, 100_000, len(in)} {
		m := newMemory(1 << 20)
		r := readerOf(in, piece, m)
		for i, n := range sizes {
			fr, err := r.next(t.Context())
			if err != nil {
				t.Fatalf("pieces of %d: frame %d: %v", piece, i, err)
			}
			if !bytes.Equal(fr.bytes(), bytes.Repeat([]byte{byte(i + 1)}, n)) {
				t.Fatalf("pieces of %d: frame %d differs", piece, i)
			}
			r.free(fr)
		}
		if _, err := r.next(t.Context()); err != io.EOF {
			t.Errorf("pieces of %d: end is %v", piece, err)
		}
		if m.inUse() != 0 {
			t.Errorf("pieces of %d: %d bytes held", piece, m.inUse())
		}
	}
}

// Whatever arrives, the reader ends, gives its memory back and holds no more
// than arrived and a little.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2}, 1)
	f.Add([]byte{0, 0, 0, 2, 1}, 5)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 2)
	f.Add([]byte("GET / HTTP/1.1"), 3)
	f.Add([]byte{0, 8, 0, 0, 1, 2, 3}, 100)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		m := newMemory(64 << 20)
		r := readerOf(in, piece, m)
		for {
			fr, err := r.next(t.Context())
			if held := m.inUse(); held > int64(5*len(in)+2*readBufferSize) {
				t.Fatalf("%d bytes held for %d", held, len(in))
			}
			if err != nil {
				break
			}
			r.free(fr)
		}
		if m.inUse() != 0 {
			t.Fatalf("%d bytes held at the end", m.inUse())
		}
	})
}
