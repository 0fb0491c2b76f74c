package server

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two from 1 KiB to 32 MiB; what is larger is made for
// its one use. Fresh memory costs several times what reading into it does, and
// the pools give theirs back with the second garbage collection that finds it
// unused.
const (
	minBufferShift = 10
	maxBufferShift = 25
)

// buffer is memory for one request or for answers on their way out. It has one
// owner, who gives it back with free and does not look at it again.
type buffer struct {
	b []byte
}

var bufferPools [maxBufferShift - minBufferShift + 1]sync.Pool

// newBuffer gives an empty buffer that holds at least size bytes.
func newBuffer(size int) *buffer {
	class := bufferClass(size)
	if class >= len(bufferPools) {
		return &buffer{make([]byte, 0, size)}
	}
	if b, ok := bufferPools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 0, 1<<(class+minBufferShift))}
}

// free gives the buffer back. A nil buffer has nothing to give.
func (b *buffer) free() {
	if b == nil {
		return
	}
	// One that append has grown goes where all that it promises is true.
	class := bits.Len(uint(cap(b.b))) - 1 - minBufferShift
	if class < 0 || class >= len(bufferPools) {
		return
	}
	b.b = b.b[:0]
	bufferPools[class].Put(b)
}

// grow gives a buffer with the same bytes and room for n more; b is not used any
// more unless it comes back.
func (b *buffer) grow(n int) *buffer {
	if cap(b.b)-len(b.b) >= n {
		return b
	}
	larger := newBuffer(len(b.b) + n)
	larger.b = append(larger.b, b.b...)
	b.free()
	return larger
}

// bufferClass is the class of the smallest buffers that hold size bytes.
func bufferClass(size int) int {
	if size <= 1<<minBufferShift {
		return 0
	}
	return bits.Len(uint(size-1)) - minBufferShift
}
