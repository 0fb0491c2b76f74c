package protocol

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSiftIsKafkas: what Apache Kafka 4.4's cleaner made of these batches, by size and CRC.
func TestSiftIsKafkas(t *testing.T) {
	const horizon, later = 1796152984439, 1796066586367
	data := BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	with := func(s BatchSpec, base, ts int64) BatchSpec {
		s.BaseOffset, s.BaseTimestamp = base, ts
		return s
	}
	filler := bytes.Repeat([]byte("z"), 60)
	gone := []Record{{Key: []byte("gone")}, {TimestampDelta: 1, Key: []byte("c"), Value: []byte("2")}}
	never := []Record{{Key: []byte("d"), Value: []byte("2")}, {TimestampDelta: 1, Key: []byte("never")}}
	for _, tt := range []struct {
		name    string
		spec    BatchSpec
		records []Record
		keep    []int
		horizon int64
		size    int
		crc     uint32
	}{
		{"a tombstone gets its horizon", with(data, 8, 1796066520144), gone, []int{0, 1}, horizon, 87, 2534635592},
		{"the second of two", with(data, 41, 1796066520172), []Record{{Key: []byte("filler"), Value: []byte("7")},
			{TimestampDelta: 1, Key: []byte("k3"), Value: fmt.Appendf(nil, "value 7 %s", filler)}}, []int{1}, 0, 140, 3693281970},
		{"in a transaction", BatchSpec{BaseOffset: 17, BaseTimestamp: 1796066520151, ProducerID: 0, ProducerEpoch: 1, Transactional: true},
			never, []int{0, 1}, horizon, 88, 751889151},
		{"the last of its producer", BatchSpec{BaseOffset: 23, BaseTimestamp: 1796066520154, ProducerID: 2, BaseSequence: 1},
			[]Record{{Key: []byte("idem"), Value: []byte("overwritten")}}, nil, 0, 61, 3181127358},
		{"a marker gets its horizon", BatchSpec{BaseOffset: 15, BaseTimestamp: 1796066582794, ProducerID: 1, ProducerEpoch: 3, BaseSequence: -1,
			Transactional: true, Control: true}, []Record{{Key: []byte{0, 0, 0, 0}, Value: make([]byte, 6)}}, []int{0}, 1796066589924, 79, 2991660495},
	} {
		b, err := AppendBatch(nil, tt.spec, tt.records)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Sift(nil, Sifting{Keep: func(i int) bool { return slices.Contains(tt.keep, i) }, Horizon: tt.horizon})
		if err != nil {
			t.Fatal(err)
		}
		if h := got.Header(); len(got) != tt.size || h.CRC != tt.crc {
			t.Errorf("%s: %d bytes, %+v", tt.name, len(got), h)
		}
	}

	// The horizon stays when the tombstone has gone.
	b, err := AppendBatch(nil, with(data, 8, 1796066522653), gone)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = b.Sift(nil, Sifting{Keep: func(int) bool { return true }, Horizon: later}); err != nil {
		t.Fatal(err)
	}
	if b, err = b.Sift(nil, Sifting{Keep: func(i int) bool { return i == 1 }}); err != nil {
		t.Fatal(err)
	}
	if h := b.Header(); h.CRC != 363741625 || h.Size != 72 || h.BaseTimestamp != later {
		t.Errorf("%+v", h)
	}
}

// TestSift compares with a batch that is taken apart and put together.
func TestSift(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 500 {
		spec := BatchSpec{
			BaseOffset: r.Int64N(1 << 40), LeaderEpoch: r.Int32N(9), Codec: Codec(r.IntN(5)), BaseTimestamp: 1_700_000_000_000 + r.Int64N(1e9),
			ProducerID: r.Int64N(9) - 1, ProducerEpoch: int16(r.IntN(5)), BaseSequence: r.Int32N(100), Transactional: r.IntN(2) == 0,
			LogAppendTime: r.IntN(4) == 0,
		}
		records := make([]Record, 1+r.IntN(20))
		for k := range records {
			records[k] = Record{TimestampDelta: r.Int64N(1000) - 500, Key: fmt.Appendf(nil, "key %d", r.IntN(10)), Value: bytes.Repeat([]byte("v"), r.IntN(300))}
			switch r.IntN(8) {
			case 0:
				records[k].Value = nil
			case 1:
				records[k].Key = nil
			case 2:
				records[k].Headers = []Header{{"h", nil}, {"h", []byte("x")}}
			case 3:
				records[k].Value = bytes.Repeat([]byte("long"), windowSize/2)
			}
		}
		b, err := AppendBatch([]byte("before"), spec, records)
		if err != nil {
			t.Fatal(err)
		}
		s := Sifting{Horizon: []int64{0, 1_800_000_000_000}[r.IntN(2)]}
		keep := r.Uint32()
		s.Keep = func(i int) bool { return keep>>i&1 == 1 }
		got, err := b.Sift([]byte("more"), s)
		if err != nil {
			t.Fatal(err)
		}
		checkSifted(t, i, b, got, s)
		again, err := got.Sift(nil, Sifting{Keep: func(int) bool { return true }})
		if err != nil || got.Header().NumRecords > 0 && !bytes.Equal(again, got) {
			t.Fatalf("%d: sifting again changed it: %v", i, err)
		}
	}
}

func checkSifted(t *testing.T, i int, b, got Batch, s Sifting) {
	t.Helper()
	if err := got.CheckCRC(); err != nil {
		t.Fatal(i, err)
	}
	want, h := b.Header(), got.Header()
	all, rest := decode(t, b), decode(t, got)
	var kept []string
	want.MaxTimestamp = -1
	for k, r := range all {
		if s.Keep(k) {
			kept = append(kept, r.text)
			want.MaxTimestamp = max(want.MaxTimestamp, r.timestamp)
		}
	}
	var found []string
	for _, r := range rest {
		found = append(found, r.text)
	}
	if !slices.Equal(found, kept) {
		t.Fatalf("%d: %v, want %v", i, found, kept)
	}
	want.NumRecords, want.Size, want.CRC, want.BaseTimestamp = int32(len(kept)), h.Size, h.CRC, h.BaseTimestamp
	switch {
	case len(kept) == 0:
		want.Attributes &^= attrCodecMask
		want.BaseTimestamp, want.MaxTimestamp = -1, b.Header().MaxTimestamp
		if len(got) != BatchHeaderLen {
			t.Fatal(i, "an empty batch of", len(got))
		}
	case s.Horizon != 0:
		want.Attributes |= attrHorizon
		want.BaseTimestamp = s.Horizon
	}
	if h != want {
		t.Fatalf("%d: header %+v, want %+v", i, h, want)
	}
}

type decoded struct {
	text      string
	timestamp int64
}

func decode(t *testing.T, b Batch) (list []decoded) {
	t.Helper()
	h := b.Header()
	r := b.Records(math.MaxInt32)
	defer r.Close()
	for r.Next() {
		rec := r.Record()
		ts := h.Timestamp(rec.TimestampDelta)
		list = append(list, decoded{fmt.Sprintf("%d %d %q %v %x %v", h.BaseOffset+int64(rec.OffsetDelta), ts, rec.Key, rec.Key == nil,
			sha256.Sum256(rec.Value), rec.Headers), ts})
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return list
}

// TestWalkKeys: equal keys have equal ids, however long they are and wherever they lie.
func TestWalkKeys(t *testing.T) {
	keys := [][]byte{[]byte("a"), nil, {}, bytes.Repeat([]byte("k"), windowSize), bytes.Repeat([]byte("k"), windowSize+1), bytes.Repeat([]byte("k"), 10*windowSize)}
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		var records []Record
		for i, k := range keys {
			records = append(records, Record{Key: k, Value: []byte("v")})
			if i%2 == 0 {
				records[i].Value = nil
			}
		}
		b, err := AppendBatch(nil, BatchSpec{Codec: codec, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, records)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = b.WalkKeys(func(r RecordInfo, id *KeyID) error {
			sum := sha256.Sum256(keys[r.Index])
			if r.NullKey != (keys[r.Index] == nil) || r.NullValue != (r.Index%2 == 0) || !r.NullKey && *id != KeyID(sum[:16]) {
				t.Errorf("%s, record %d: %+v %x", codec, r.Index, r, *id)
			}
			n++
			return nil
		})
		if err != nil || n != len(keys) {
			t.Fatal(n, err)
		}
	}
}

// FuzzSift: whatever a batch holds, it is refused or sifted into a whole one.
func FuzzSift(f *testing.F) {
	for codec := CodecNone; codec <= CodecZstd; codec++ {
		b, err := AppendBatch(nil, BatchSpec{Codec: codec, ProducerID: -1}, []Record{{Key: []byte("k"), Value: []byte("v")}, {Key: []byte("l")}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b), uint8(1), int64(0))
		f.Add([]byte(b), uint8(3), int64(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, keep uint8, horizon int64) {
		b, _, err := SplitBatch(data)
		if err != nil {
			return
		}
		got, err := b.Sift(nil, Sifting{Keep: func(i int) bool { return keep>>(i%8)&1 == 1 }, Horizon: horizon})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		if err := got.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		if err := got.WalkKeys(func(RecordInfo, *KeyID) error { return nil }); err != nil && b.WalkKeys(func(RecordInfo, *KeyID) error { return nil }) == nil {
			t.Fatal(err)
		}
	})
}
