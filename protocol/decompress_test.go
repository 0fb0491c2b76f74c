package protocol

import (
	"bytes"
	"errors"
	"testing"
)

// What is compressed comes back, whole or as an error.
func TestDecompress(t *testing.T) {
	content := bytes.Repeat([]byte("client metrics "), 1000)
	for c := CodecNone; c <= CodecZstd; c++ {
		src := content
		if c != CodecNone {
			var err error
			if src, err = Compress(nil, content, c, 0); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := Decompress(src, c, len(content)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", c, len(got), err)
		}
		if _, err := Decompress(src, c, len(content)-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: one byte too many: %v", c, err)
		}
		if c == CodecNone {
			continue
		}
		for _, bad := range [][]byte{[]byte("garbage"), src[:len(src)/2]} {
			if got, err := Decompress(bad, c, 1<<20); !errors.Is(err, ErrDecompress) && c != CodecSnappy {
				t.Errorf("%s: %d bytes, %v", c, len(got), err)
			}
		}
	}
	if _, err := Decompress(content, 5, 1<<20); !errors.Is(err, ErrDecompress) {
		t.Errorf("codec 5: %v", err)
	}
}
