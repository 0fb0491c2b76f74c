package protocol

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFramesRoundTrip(t *testing.T) {
	var stream []byte
	for _, n := range []int{1, 4, 5, firstGrow - 1, firstGrow, firstGrow + 1, 100000} {
		frame := make([]byte, 4+n)
		frame[len(frame)-1] = byte(n)
		stream = append(stream, closeFrame(frame, 0)...)
	}
	for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.DataErrReader(bytes.NewReader(stream))} {
		f := FrameReader{Max: 1 << 20}
		var buf []byte
		for _, n := range []int{1, 4, 5, firstGrow - 1, firstGrow, firstGrow + 1, 100000} {
			var err error
			if buf, err = f.Read(r, buf); err != nil || len(buf) != n || buf[n-1] != byte(n) {
				t.Fatalf("%d: %d bytes, %v", n, len(buf), err)
			}
		}
		if _, err := f.Read(r, buf); err != io.EOF {
			t.Error(err)
		}
	}
}

func TestHostileFrames(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   error
		hint   string
	}{
		{"", io.EOF, ""},
		{"\x00", io.ErrUnexpectedEOF, ""},
		{"\x00\x00\x00\x05abc", io.ErrUnexpectedEOF, ""},
		{"\x00\x00\x00\x05", io.ErrUnexpectedEOF, ""},
		{"\x00\x00\x00\x00", ErrFrame, ""},
		{"\xff\xff\xff\xff", ErrFrame, ""},
		{"\x06\x40\x00\x01", ErrFrame, ""},
		{"GET / HTTP/1.1\r\n", ErrFrame, "HTTP"},
		{"\x16\x03\x01\x02\x00", ErrFrame, "TLS"},
	} {
		_, err := (&FrameReader{Max: 100 << 20}).Read(strings.NewReader(c.stream), nil)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%q: %v", c.stream, err)
		}
	}
}

// TestFramesGrowWithWhatArrives: a frame that claims 100 MB and brings 20 KB costs about as much as it brings.
func TestFramesGrowWithWhatArrives(t *testing.T) {
	stream := append([]byte{6, 0x40, 0, 0}, make([]byte, 20000)...)
	if took := allocated(func() {
		if _, err := (&FrameReader{Max: 100 << 20}).Read(bytes.NewReader(stream), nil); err != io.ErrUnexpectedEOF {
			t.Error(err)
		}
	}); took > 100<<10 {
		t.Errorf("%d bytes", took)
	}
	var needs []int
	refused := errors.New("refused")
	f := FrameReader{Max: 100 << 20, Grow: func(old []byte, need int) ([]byte, error) {
		if needs = append(needs, need); need > 64<<10 {
			return old, refused
		}
		return append(make([]byte, 0, need), old...), nil
	}}
	got, err := f.Read(bytes.NewReader(append(stream, make([]byte, 100000)...)), nil)
	if err != refused || len(got) != 64<<10 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if want := []int{4, 16 << 10, 32 << 10, 64 << 10, 128 << 10}; len(needs) != len(want) || needs[4] != want[4] {
		t.Errorf("%v", needs)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 1, 2, 3})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := (&FrameReader{Max: 1 << 20}).Read(bytes.NewReader(src), nil)
		if err == nil && !bytes.Equal(got, src[4:4+len(got)]) {
			t.Errorf("%x of %x", got, src)
		}
	})
}
