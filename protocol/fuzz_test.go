package protocol

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzBatch: whatever the bytes are, reading them ends in an error of ours, Walk and RecordReader agree, and a batch that is right survives a rebuild.
func FuzzBatch(f *testing.F) {
	batches, _ := kafkaBatches(f)
	for _, b := range batches {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		b, _, err := SplitBatch(src)
		if err != nil {
			return
		}
		b = bytes.Clone(b)
		b.seal()
		if err := b.Check(1 << 20); err != nil {
			return
		}
		const limit = 1 << 20
		walk := b.Walk(limit, nil)
		r := b.Records(limit)
		n := int32(0)
		for r.Next() {
			n++
		}
		r.Close()
		if (walk == nil) != (r.Err() == nil) {
			t.Fatalf("walk: %v; records: %v", walk, r.Err())
		}
		if walk != nil {
			if !errors.Is(walk, ErrInvalid) && !errors.Is(walk, ErrDecompress) {
				t.Fatal(walk)
			}
			return
		}
		again, err := b.Rebuild(nil, CodecNone, 0, limit, math.MaxInt32)
		if err != nil || again.Check(math.MaxInt32) != nil || again.Walk(limit, nil) != nil || again.Header().NumRecords != n {
			t.Fatalf("rebuild: %v", err)
		}
	})
}

// FuzzUsual: the short way through a record reads what the long one does, and takes no record that the long one refuses.
func FuzzUsual(f *testing.F) {
	batches, _ := kafkaBatches(f)
	for _, b := range batches {
		f.Add([]byte(b[BatchHeaderLen:]), int64(1<<20))
	}
	f.Add([]byte{12, 0, 0, 0, 1, 1, 0}, int64(100))
	f.Add([]byte{16, 0, 0, 0, 2, 'k', 2, 'v', 0}, int64(7))
	f.Fuzz(func(t *testing.T, src []byte, limit int64) {
		a, b := cursor{buf: src, end: len(src)}, cursor{buf: src, end: len(src)}
		for {
			var short, long RecordInfo
			taken := a.usual(&short, limit)
			if !taken && (a.pos != b.pos || short != RecordInfo{}) {
				t.Fatalf("at %d: refused, and read up to %d: %+v", b.pos, a.pos, short)
			}
			err := b.walk(&long, limit, nil)
			if taken && (err != nil || short != long || a.pos != b.pos) {
				t.Fatalf("short way: %+v up to %d; long way: %+v up to %d, %v", short, a.pos, long, b.pos, err)
			}
			if err != nil {
				return
			}
			a.pos = b.pos
		}
	})
}

// FuzzRequest: a frame is read or refused, and what is read takes memory in proportion.
func FuzzRequest(f *testing.F) {
	everyRequest(func(key, version int16) {
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		f.Add(AppendRequest(nil, 1, nil, req)[4:])
	})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseRequestHeader(frame)
		if err == nil {
			_, err = ParseRequest(h, body)
		}
		if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownAPI) {
			t.Fatal(err)
		}
	})
}

func FuzzUUID(f *testing.F) {
	f.Add("y2Gs4NzATTuy1SFoa2jnJQ")
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := ParseUUID(s); err == nil {
			if again, err := ParseUUID(u.String()); err != nil || again != u {
				t.Errorf("%q: %v, %v", s, again, err)
			}
		}
	})
}
