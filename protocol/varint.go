package protocol

import "encoding/binary"

// Uvarint reads an unsigned varint of at most 32 bits as Kafka does: five bytes at most, bits beyond the 32nd are lost.
// It returns the length read: 0 if b ends too early, -1 if the number is too long.
func Uvarint(b []byte) (uint32, int) {
	var v uint32
	for i := range min(len(b), 5) {
		c := b[i]
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	if len(b) >= 5 {
		return 0, -1
	}
	return 0, 0
}

// Varint reads a zig-zag varint of at most 32 bits; see Uvarint.
func Varint(b []byte) (int32, int) {
	u, n := Uvarint(b)
	return int32(u>>1) ^ -int32(u&1), n
}

// Varlong reads a zig-zag varint of at most 64 bits in at most ten bytes; see Uvarint.
func Varlong(b []byte) (int64, int) {
	var v uint64
	for i := range min(len(b), 10) {
		c := b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1), i + 1
		}
	}
	if len(b) >= 10 {
		return 0, -1
	}
	return 0, 0
}

// AppendUvarint appends an unsigned varint.
func AppendUvarint(dst []byte, v uint32) []byte { return binary.AppendUvarint(dst, uint64(v)) }

// AppendVarint appends a zig-zag varint.
func AppendVarint(dst []byte, v int32) []byte { return AppendVarlong(dst, int64(v)) }

// AppendVarlong appends a zig-zag varint.
func AppendVarlong(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v<<1)^uint64(v>>63))
}

// varintLen is the length of v as a zig-zag varint.
func varintLen(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
