package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// errCorrupt is a log entry or snapshot that cannot be what a controller wrote.
var errCorrupt = errors.New("corrupt metadata")

// Writing: values are varints, strings and lists carry their length before them.

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendOptional writes nil as 0 and a string as its length + 1.
func appendOptional(b []byte, s *string) []byte {
	if s == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(*s))+1), *s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendInt32s(b []byte, vs []int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(vs)))
	for _, v := range vs {
		b = binary.AppendVarint(b, int64(v))
	}
	return b
}

func appendIDs(b []byte, ids [][16]byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// reader takes values off src. The first thing that does not fit sets err, and from then on every value is zero. Lengths and counts are held
// against what is left of src before anything is allocated for them.
type reader struct {
	src []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, %d bytes left", errCorrupt, what, len(r.src))
	}
	r.src = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.src)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.src = r.src[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.src)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.src = r.src[n:]
	return v
}

func (r *reader) int32() int32 {
	v := r.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		r.fail("number exceeds 32 bits")
		return 0
	}
	return int32(v)
}

func (r *reader) int16() int16 {
	v := r.varint()
	if v < math.MinInt16 || v > math.MaxInt16 {
		r.fail("number exceeds 16 bits")
		return 0
	}
	return int16(v)
}

func (r *reader) byte() byte {
	if len(r.src) == 0 {
		r.fail("end of data")
		return 0
	}
	v := r.src[0]
	r.src = r.src[1:]
	return v
}

func (r *reader) bool() bool {
	switch r.byte() {
	case 0:
	case 1:
		return true
	default:
		r.fail("bad boolean")
	}
	return false
}

// bytes aliases src.
func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.src)) {
		r.fail("length exceeds data")
		return nil
	}
	v := r.src[:n]
	r.src = r.src[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes(r.uvarint())) }

func (r *reader) optional() *string {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	s := string(r.bytes(n - 1))
	return &s
}

func (r *reader) id() (id [16]byte) {
	copy(id[:], r.bytes(16))
	return id
}

// count reads the length of a list whose elements take at least size bytes each.
func (r *reader) count(size int) int {
	n := r.uvarint()
	if n > uint64(len(r.src)/size) {
		r.fail("count exceeds data")
		return 0
	}
	return int(n)
}

func (r *reader) int32s() []int32 {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	vs := make([]int32, n)
	for i := range vs {
		vs[i] = r.int32()
	}
	return vs
}

func (r *reader) ids() [][16]byte {
	n := r.count(16)
	if n == 0 {
		return nil
	}
	vs := make([][16]byte, n)
	for i := range vs {
		vs[i] = r.id()
	}
	return vs
}
