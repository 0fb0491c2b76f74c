package protocol

import "strconv"

// Codec is a compression codec, numbered as in a batch's attributes.
type Codec int8

// The codecs of batches.
const (
	CodecNone Codec = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// Valid reports whether there is such a codec.
func (c Codec) Valid() bool { return c >= CodecNone && c <= CodecZstd }

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	if !c.Valid() {
		return "codec " + strconv.Itoa(int(c))
	}
	return codecNames[c]
}

// ParseCodec returns the codec of that name (none and uncompressed are the same one).
func ParseCodec(name string) (Codec, bool) {
	if name == "uncompressed" {
		return CodecNone, true
	}
	for c, n := range codecNames {
		if n == name {
			return Codec(c), true
		}
	}
	return 0, false
}

// maxPooled is the largest buffer that is kept for reuse, in bytes.
const maxPooled = 1 << 20
