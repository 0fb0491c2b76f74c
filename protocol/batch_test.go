package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"
)

// kafkaBatch is a batch as Apache Kafka 4.4 wrote it, and what Kafka read in it.
type kafkaBatch struct {
	BaseOffset, LastOffset int64
	LeaderEpoch, Size      int32
	CRC                    uint32
	Codec                  string
	BaseTimestamp          int64
	MaxTimestamp           int64
	ProducerID             int64
	ProducerEpoch          int16
	BaseSequence           int32
	Records                []struct {
		Offset, Timestamp int64
		Key, Value        []byte
		Headers           []struct {
			Key   string
			Value []byte
		}
	}
}

// kafkaBatches reads a log file of Kafka's own: one batch and more of each codec, with null and empty fields.
func kafkaBatches(t testing.TB) ([]Batch, []kafkaBatch) {
	t.Helper()
	var want []kafkaBatch
	raw, err := os.ReadFile("testdata/kafka-4.4-codecs.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	rest, err := os.ReadFile("testdata/kafka-4.4-codecs.log")
	if err != nil {
		t.Fatal(err)
	}
	var batches []Batch
	for len(rest) > 0 {
		var b Batch
		if b, rest, err = SplitBatch(rest); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
	}
	if len(batches) != len(want) {
		t.Fatalf("%d batches, want %d", len(batches), len(want))
	}
	return batches, want
}

func TestKafkasBatchesReadAsKafkaReadThem(t *testing.T) {
	batches, want := kafkaBatches(t)
	for i, b := range batches {
		h, w := b.Header(), want[i]
		if h.BaseOffset != w.BaseOffset || h.LastOffset() != w.LastOffset || h.LeaderEpoch != w.LeaderEpoch || h.Size != w.Size ||
			h.CRC != w.CRC || h.Codec().String() != w.Codec || h.MaxTimestamp != w.MaxTimestamp || h.ProducerID != w.ProducerID {
			t.Errorf("batch %d: %+v, want %+v", i, h, w)
		}
		if err := b.Check(len(b)); err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
		if err := b.Walk(math.MaxInt32, nil); err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
		r := b.Records(math.MaxInt32)
		n := 0
		for ; r.Next(); n++ {
			rec, wr := r.Record(), w.Records[n]
			if h.BaseOffset+int64(rec.OffsetDelta) != wr.Offset || h.Timestamp(rec.TimestampDelta) != wr.Timestamp ||
				!same(rec.Key, wr.Key) || !same(rec.Value, wr.Value) || len(rec.Headers) != len(wr.Headers) {
				t.Errorf("batch %d record %d: %+v, want %+v", i, n, rec, wr)
				continue
			}
			for j, header := range rec.Headers {
				if header.Key != wr.Headers[j].Key || !same(header.Value, wr.Headers[j].Value) {
					t.Errorf("batch %d record %d header %d: %+v", i, n, j, header)
				}
			}
		}
		if r.Err() != nil || n != len(w.Records) {
			t.Errorf("batch %d: %d records, want %d: %v", i, n, len(w.Records), r.Err())
		}
		r.Close()
	}
}

// same compares and keeps null and empty apart.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// TestUncompressedBatchIsKafkasBytes builds what Java built, byte for byte.
func TestUncompressedBatchIsKafkasBytes(t *testing.T) {
	batches, _ := kafkaBatches(t)
	for i, b := range batches {
		h := b.Header()
		if h.Codec() != CodecNone {
			continue
		}
		got, err := AppendBatch(nil, specOf(h), copyRecords(t, b))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("batch %d: %v\n%x, want\n%x", i, err, got, b)
		}
	}
}

func specOf(h BatchHeader) BatchSpec {
	return BatchSpec{
		BaseOffset: h.BaseOffset, LeaderEpoch: h.LeaderEpoch, Codec: h.Codec(), BaseTimestamp: h.BaseTimestamp,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		Transactional: h.Transactional(), Control: h.Control(), LogAppendTime: h.LogAppendTime(),
	}
}

func copyRecords(t testing.TB, b Batch) []Record {
	t.Helper()
	var all []Record
	r := b.Records(math.MaxInt32)
	defer r.Close()
	for r.Next() {
		rec := r.Record()
		rec.Key, rec.Value = bytes.Clone(rec.Key), bytes.Clone(rec.Value)
		headers := make([]Header, 0, len(rec.Headers))
		for _, h := range rec.Headers {
			headers = append(headers, Header{h.Key, bytes.Clone(h.Value)})
		}
		rec.Headers = headers
		all = append(all, rec)
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return all
}

func plain(t testing.TB, codec Codec, records ...Record) Batch {
	t.Helper()
	b, err := AppendBatch(nil, BatchSpec{Codec: codec, BaseTimestamp: 1000, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, records)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSplitBatchSaysWhatIsWrong(t *testing.T) {
	good := plain(t, CodecNone, Record{Value: []byte("v")})
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	length := func(n uint32) []byte {
		return edit(func(b []byte) { binary.BigEndian.PutUint32(b[8:], n) })
	}
	for _, c := range []struct {
		name string
		src  []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"no length", good[:11], ErrShort},
		{"no magic", good[:16], ErrShort},
		{"cut", good[:len(good)-1], ErrShort},
		{"size 13", length(13), ErrCorrupt},
		{"size 13, cut", length(13)[:12], ErrCorrupt},
		{"size negative", length(0xffffffff), ErrCorrupt},
		{"size overflows", length(0x7ffffffa), ErrCorrupt},
		{"smaller than a header", length(48), ErrCorrupt},
		{"magic 0", edit(func(b []byte) { b[16] = 0 }), ErrMagic},
		{"magic 1", edit(func(b []byte) { b[16] = 1 }), ErrMagic},
		{"magic 3", edit(func(b []byte) { b[16] = 3 }), ErrCorrupt},
		{"magic -1", edit(func(b []byte) { b[16] = 0xff }), ErrCorrupt},
	} {
		if _, _, err := SplitBatch(c.src); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	b, rest, err := SplitBatch(append(bytes.Clone(good), 1, 2, 3))
	if err != nil || !bytes.Equal(b, good) || !bytes.Equal(rest, []byte{1, 2, 3}) || cap(b) != len(b) {
		t.Errorf("%x, %x, %v", b, rest, err)
	}
}

func TestCheckIsTheGate(t *testing.T) {
	good := plain(t, CodecNone, Record{Value: []byte("v")}, Record{Value: []byte("w")})
	if err := good.Check(len(good)); err != nil {
		t.Fatal(err)
	}
	edit := func(sealed bool, f func(b Batch)) Batch {
		b := bytes.Clone(good)
		f(b)
		if sealed {
			Batch(b).seal()
		}
		return b
	}
	for _, c := range []struct {
		name string
		b    Batch
		max  int
		want error
	}{
		{"too large", good, len(good) - 1, ErrTooLarge},
		{"flipped bit", edit(false, func(b Batch) { b[len(b)-1] ^= 1 }), 1000, ErrCorrupt},
		{"CRC", edit(false, func(b Batch) { b[17] ^= 1 }), 1000, ErrCorrupt},
		{"no records", edit(true, func(b Batch) { binary.BigEndian.PutUint32(b[57:], 0) }), 1000, ErrInvalid},
		{"negative records", edit(true, func(b Batch) { binary.BigEndian.PutUint32(b[57:], 0xffffffff) }), 1000, ErrInvalid},
		{"last offset delta", edit(true, func(b Batch) { binary.BigEndian.PutUint32(b[23:], 2) }), 1000, ErrInvalid},
		{"offset overflows", edit(true, func(b Batch) { binary.BigEndian.PutUint64(b, math.MaxInt64) }), 1000, ErrInvalid},
		{"codec 5", edit(true, func(b Batch) { b[22] |= 5 }), 1000, ErrDecompress},
		{"longer slice", append(bytes.Clone(good), 0), 1000, ErrCorrupt},
	} {
		if err := c.b.Check(c.max); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestInPlaceChanges(t *testing.T) {
	b := plain(t, CodecNone, Record{Value: []byte("v"), TimestampDelta: 7})
	b.SetBase(1<<40, 9)
	if h := b.Header(); h.BaseOffset != 1<<40 || h.LeaderEpoch != 9 {
		t.Errorf("%+v", h)
	}
	if err := b.CheckCRC(); err != nil {
		t.Error("the base is under the CRC:", err)
	}
	before := bytes.Clone(b)
	b[17] ^= 1 // a wrong CRC stays if nothing is to change
	b.SetMaxTimestamp(false, 1007)
	if before[17]^1 != b[17] {
		t.Error("a batch that was right is not the producer's any more")
	}
	b.SetMaxTimestamp(true, 5555)
	h := b.Header()
	if !h.LogAppendTime() || h.MaxTimestamp != 5555 || h.Timestamp(7) != 5555 || b.CheckCRC() != nil {
		t.Errorf("%+v, %v", h, b.CheckCRC())
	}
	b.SetMaxTimestamp(false, 1007)
	if !bytes.Equal(before, b) {
		t.Errorf("%x, want %x", b, before)
	}
}

func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct{ base, delta, want int32 }{
		{-1, 4, -1}, {0, 0, 0}, {5, 4, 9}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 4, 2},
	} {
		if got := (BatchHeader{BaseSequence: c.base, LastOffsetDelta: c.delta}).LastSequence(); got != c.want {
			t.Errorf("%d + %d: %d, want %d", c.base, c.delta, got, c.want)
		}
	}
}

func TestHeaderFlags(t *testing.T) {
	b, err := AppendBatch([]byte("before"), BatchSpec{
		BaseOffset: 3, LeaderEpoch: 4, BaseTimestamp: -1, ProducerID: 5, ProducerEpoch: 6, BaseSequence: 7, Transactional: true, Control: true,
	}, []Record{{OffsetDelta: 9}})
	if err != nil {
		t.Fatal(err)
	}
	h := b.Header()
	if !h.Transactional() || !h.Control() || h.LogAppendTime() || h.HasDeleteHorizon() || h.MaxTimestamp != -1 || h.ProducerID != 5 ||
		h.ProducerEpoch != 6 || h.BaseSequence != 7 || h.LastOffset() != 3 || h.NumRecords != 1 || int(h.Size) != len(b) {
		t.Errorf("%+v", h)
	}
	if _, err := AppendBatch(nil, BatchSpec{}, nil); err == nil {
		t.Error("a batch without records")
	}
}

func BenchmarkCheck(b *testing.B) {
	batch := plain(b, CodecNone, Record{Value: make([]byte, 16<<10)})
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.Check(1 << 20); err != nil {
			b.Fatal(err)
		}
	}
}
