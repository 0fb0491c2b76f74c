package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var allCodecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

func randomRecords(r *rand.Rand, n int) []Record {
	blob := func() []byte {
		switch r.IntN(4) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, r.IntN(300))
		for i := range b {
			b[i] = byte(r.IntN(4))
		}
		return b
	}
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{TimestampDelta: r.Int64() >> r.IntN(64), OffsetDelta: int32(i), Key: blob(), Value: blob(), Headers: []Header{}}
		for range r.IntN(3) {
			records[i].Headers = append(records[i].Headers, Header{Key: string(blob()), Value: blob()})
		}
	}
	return records
}

func checkRecords(t *testing.T, b Batch, want []Record) {
	t.Helper()
	got := copyRecords(t, b)
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		got[i].Length = 0
		if fmt.Sprintf("%#v", got[i]) != fmt.Sprintf("%#v", want[i]) {
			t.Fatalf("record %d: %#v, want %#v", i, got[i], want[i])
		}
	}
}

func TestRecordsSurviveEveryCodecAndLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, codec := range allCodecs {
		for _, level := range []int{0, -1, 1, 3, 9, 17, 22, -100} {
			records := randomRecords(r, 1+r.IntN(800))
			b, err := AppendBatch(nil, BatchSpec{Codec: codec, Level: level}, records)
			if err != nil {
				t.Fatal(codec, level, err)
			}
			if err := b.Check(len(b)); err != nil {
				t.Fatal(codec, level, err)
			}
			n := 0
			err = b.Walk(1<<20, func(i RecordInfo) error {
				want := records[n]
				if i.Index != n || i.TimestampDelta != want.TimestampDelta || i.OffsetDelta != want.OffsetDelta || i.NullKey != (want.Key == nil) {
					t.Fatalf("%v %+v, want %+v", codec, i, want)
				}
				n++
				return nil
			})
			if err != nil || n != len(records) {
				t.Fatal(codec, level, n, err)
			}
			checkRecords(t, b, records)
		}
	}
}

func TestRebuildKeepsRecordsAndHeader(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	records := randomRecords(r, 500)
	for i := range records {
		records[i].OffsetDelta = int32(3 * i)
	}
	for _, from := range allCodecs {
		for _, to := range allCodecs {
			spec := BatchSpec{Codec: from, BaseTimestamp: 5, ProducerID: 1, ProducerEpoch: 2, BaseSequence: 3, Transactional: true, KeepDeltas: true}
			b, err := AppendBatch(nil, spec, records)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Rebuild([]byte("prefix"), to, 0, math.MaxInt32, 1<<20)
			if err != nil {
				t.Fatal(from, to, err)
			}
			if err := got.Check(1 << 20); err != nil {
				t.Fatal(from, to, err)
			}
			want := b.Header()
			want.Attributes = want.Attributes&^attrCodecMask | int16(to)
			want.Size, want.LastOffsetDelta, want.CRC = got.Header().Size, 499, got.Header().CRC
			if got.Header() != want {
				t.Errorf("%v to %v: %+v, want %+v", from, to, got.Header(), want)
			}
			renumbered := append([]Record(nil), records...)
			for i := range renumbered {
				renumbered[i].OffsetDelta = int32(i)
			}
			checkRecords(t, got, renumbered)
			if _, err := b.Rebuild(nil, to, 0, math.MaxInt32, 100); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v to %v in 100 bytes: %v", from, to, err)
			}
		}
	}
}

// rawBatch has payload as its records, compressed by codec.
func rawBatch(t testing.TB, codec Codec, numRecords int32, payload []byte) Batch {
	t.Helper()
	packed, err := Compress(make([]byte, BatchHeaderLen), payload, codec, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := finish(packed, BatchHeader{Magic: 2, Attributes: int16(codec), NumRecords: numRecords, LastOffsetDelta: numRecords - 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMalformedRecordsAreRefused(t *testing.T) {
	// A good record: length 6+, attributes, timestamp delta, offset delta, null key, value "v", no headers.
	good := []byte{14, 0, 0, 0, 1, 2, 'v', 0}
	record := func(body ...byte) []byte { return append(AppendVarint(nil, int32(len(body))), body...) }
	overlong := []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}
	for _, c := range []struct {
		name    string
		n       int32
		payload []byte
		ok      bool
	}{
		{"good", 1, good, true},
		{"null value, null key", 1, record(0, 0, 0, 1, 1, 0), true},
		{"key length -2 is null", 1, record(0, 0, 0, 3, 1, 0), true},
		{"attributes are ignored", 1, record(0x7f, 0, 0, 1, 1, 0), true},
		{"header", 1, record(0, 0, 0, 1, 1, 2, 2, 'k', 1), true},
		{"count too high", 2, good, false},
		{"count too low", 1, append(bytes.Clone(good), good...), false},
		{"trailing byte", 1, append(bytes.Clone(good), 0), false},
		{"negative length", 1, []byte{1, 0, 0, 0, 1, 2, 'v', 0}, false},
		{"length too large", 1, append([]byte{16}, good[1:]...), false},
		{"length too small", 1, append([]byte{12}, good[1:]...), false},
		{"cut", 1, good[:5], false},
		{"empty", 1, nil, false},
		{"key longer than the record", 1, record(0, 0, 0, 20, 1, 0), false},
		{"value longer than the record", 1, record(0, 0, 0, 1, 20, 0), false},
		{"negative header count", 1, record(0, 0, 0, 1, 1, 1), false},
		{"header count too high", 1, record(0, 0, 0, 1, 1, 100), false},
		{"null header key", 1, record(0, 0, 0, 1, 1, 2, 1, 1), false},
		{"header value too long", 1, record(0, 0, 0, 1, 1, 2, 0, 8), false},
		{"overlong varint", 1, record(append(append([]byte{0, 0}, overlong...), 1, 1, 0)...), false},
	} {
		for _, codec := range allCodecs {
			b := rawBatch(t, codec, c.n, c.payload)
			errWalk := b.Walk(1000, nil)
			r := b.Records(1000)
			for r.Next() {
			}
			for what, err := range map[string]error{"walk": errWalk, "records": r.Err()} {
				if c.ok != (err == nil) || err != nil && !errors.Is(err, ErrInvalid) {
					t.Errorf("%s, %v, %s: %v", c.name, codec, what, err)
				}
			}
			r.Close()
		}
	}
}

func TestLimitIsForRecordsOfCompressedBatches(t *testing.T) {
	for _, codec := range allCodecs {
		b := plain(t, codec, Record{Value: make([]byte, 993)}) // 1000 with its six other fields
		if l := copyRecords(t, b)[0].Length; l != 1000 {
			t.Fatal(l)
		}
		if err := b.Walk(1000, nil); err != nil {
			t.Error(codec, err)
		}
		if err := b.Walk(999, nil); (err == nil) != (codec == CodecNone) {
			t.Error(codec, err)
		}
	}
}

func TestPayloadsThatDoNotDecompress(t *testing.T) {
	for _, codec := range allCodecs[1:] {
		b := plain(t, codec, Record{Value: bytes.Repeat([]byte("some value "), 500)})
		for _, broken := range []Batch{
			append(bytes.Clone(b[:BatchHeaderLen]), "this is nothing that any codec wrote"...),
			b[:BatchHeaderLen],
			b[:len(b)-9],
		} {
			if err := broken.Walk(1<<20, nil); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrInvalid) {
				t.Errorf("%v: %v", codec, err)
			}
		}
	}
	b := plain(t, CodecNone, Record{})
	b[22] |= 7
	if err := b.Walk(1, nil); !errors.Is(err, ErrDecompress) {
		t.Error(err)
	}
}

// TestForeignFramings reads what other clients write: raw snappy, several xerial streams behind each other, zstd with a known size and with a large window, lz4
// with checksums and large blocks, gzip members.
func TestForeignFramings(t *testing.T) {
	payload := plain(t, CodecNone, Record{Value: bytes.Repeat([]byte("x1y2"), 30000)}, Record{Value: []byte("end")})[BatchHeaderLen:]
	stream := func(w io.WriteCloser, err error, buf *bytes.Buffer) []byte {
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(payload)
		_ = w.Close()
		return buf.Bytes()
	}
	xerial := func(p []byte) []byte {
		b, err := Compress(nil, p, CodecSnappy, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var big, lz bytes.Buffer
	large, err := zstd.NewWriter(&big, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(64<<20))
	largeWindow := stream(large, err, &big)
	known, _ := zstd.NewWriter(nil)
	lw := lz4.NewWriter(&lz)
	_ = lw.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ChecksumOption(true), lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(payload))))
	var members bytes.Buffer
	for _, part := range [][]byte{payload[:100], payload[100:]} {
		g := gzip.NewWriter(&members)
		_, _ = g.Write(part)
		_ = g.Close()
	}
	for name, c := range map[string]struct {
		codec  Codec
		packed []byte
	}{
		"raw snappy":        {CodecSnappy, snappy.Encode(nil, payload)},
		"two xerial":        {CodecSnappy, append(xerial(payload[:70000]), xerial(payload[70000:])...)},
		"zstd large window": {CodecZstd, largeWindow},
		"zstd known size":   {CodecZstd, known.EncodeAll(payload, nil)},
		"lz4 checksums":     {CodecLZ4, stream(lw, nil, &lz)},
		"gzip members":      {CodecGzip, members.Bytes()},
	} {
		b, err := finish(append(make([]byte, BatchHeaderLen), c.packed...), BatchHeader{Magic: 2, Attributes: int16(c.codec), NumRecords: 2, LastOffsetDelta: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Walk(1<<20, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bomb compresses a record of size zeros.
func bomb(t testing.TB, codec Codec, size int) Batch {
	t.Helper()
	out := appender{dst: make([]byte, BatchHeaderLen), max: -1}
	e, err := newEncoder(codec, 1, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer e.free()
	head := AppendVarint([]byte{0, 0, 0, 1}, int32(size))
	_, _ = e.Write(append(AppendVarint(nil, int32(len(head)+size+1)), head...))
	for zeros := make([]byte, 1<<20); size > 0; size -= len(zeros) {
		_, _ = e.Write(zeros)
	}
	_, _ = e.Write([]byte{0})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := finish(out.dst, BatchHeader{Magic: 2, Attributes: int16(codec), NumRecords: 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombsTakeNoMemory walks and rebuilds records that expand by a thousand and more.
func TestBombsTakeNoMemory(t *testing.T) {
	size := 1 << 28
	if testing.Short() || raceEnabled {
		size = 1 << 25
	}
	for _, codec := range allCodecs[1:] {
		b := bomb(t, codec, size)
		took := allocated(func() {
			if err := b.Walk(math.MaxInt32, nil); err != nil {
				t.Error(codec, err)
			}
			if _, err := b.Rebuild(nil, CodecNone, 0, math.MaxInt32, 1<<20); !errors.Is(err, ErrTooLarge) {
				t.Error(codec, err)
			}
			r := b.Records(1 << 20)
			if r.Next() || !errors.Is(r.Err(), ErrInvalid) {
				t.Error(codec, r.Err())
			}
			r.Close()
		})
		if took > 24<<20 {
			t.Errorf("%v: %d bytes became %d MB of memory", codec, len(b), took>>20)
		}
	}
}

// TestClaimsTakeNoMemory has payloads that claim a lot and hold nothing.
func TestClaimsTakeNoMemory(t *testing.T) {
	for name, c := range map[string]struct {
		codec   Codec
		payload []byte
	}{
		"snappy length":   {CodecSnappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
		"xerial block":    {CodecSnappy, append(append(bytes.Clone(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1), 0x7f, 0xff, 0xff, 0xff)},
		"zstd window":     {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x88, 0x01, 0x00, 0x00}},
		"zstd size":       {CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0x01, 0x00, 0x00}},
		"record's length": {CodecNone, []byte{0xfe, 0xff, 0xff, 0xff, 0x0f, 0}},
	} {
		b, err := finish(append(make([]byte, BatchHeaderLen), c.payload...), BatchHeader{Magic: 2, Attributes: int16(c.codec), NumRecords: 1})
		if err != nil {
			t.Fatal(err)
		}
		took := allocated(func() {
			if err := b.Walk(math.MaxInt32, nil); err == nil {
				t.Error(name, "passed")
			}
			r := b.Records(math.MaxInt32)
			if r.Next() {
				t.Error(name, "has a record")
			}
			r.Close()
		})
		if took > 4<<20 {
			t.Errorf("%s: %d KB", name, took>>10)
		}
	}
}

func TestWalkAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	records := randomRecords(rand.New(rand.NewPCG(5, 6)), 100)
	for codec, budget := range map[Codec]float64{CodecNone: 0, CodecGzip: 4, CodecSnappy: 1, CodecLZ4: 4, CodecZstd: 4} {
		b := plain(t, codec, records...)
		largest := int64(0)
		got := testing.AllocsPerRun(100, func() {
			_ = b.Walk(1<<20, func(i RecordInfo) error {
				largest = max(largest, i.TimestampDelta)
				return nil
			})
		})
		if got > budget {
			t.Errorf("%v: %v allocations, the budget is %v", codec, got, budget)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	records := make([]Record, 100)
	for i := range records {
		records[i] = Record{Key: []byte("some-key"), Value: make([]byte, 1000)}
	}
	for _, codec := range allCodecs {
		batch := plain(b, codec, records...)
		b.Run(codec.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.Walk(1<<20, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
