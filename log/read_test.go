package log

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"oncelog/protocol"
)

// A placed batch is one of the model that reads are compared with.
type placed struct {
	protocol.Batch
	segment  int // number of its segment
	position int64
}

// buildModel appends batches to a log of small segments, and notes where each went.
func buildModel(t *testing.T, rng *rand.Rand, settings Settings) (*Log, []placed) {
	l, _ := mustOpen(t, newMem(t), settings, Recovery{})
	var model []placed
	segment := 0
	for range 40 + rng.IntN(80) {
		base := l.End()
		if rng.IntN(5) == 0 {
			base += rng.Int64N(4) // a follower's log, or a compacted one, has holes
		}
		b := makeBatch(t, base, 1+rng.IntN(6), 1000+rng.Int64N(5000), 70+rng.IntN(400))
		a := mustAppend(t, l, b)
		if a.Rolled {
			segment++
		}
		model = append(model, placed{b, segment, a.Position})
	}
	return l, model
}

// expect is what Read must return: the slow way.
func expect(model []placed, from int64, maxBytes int, minOne bool, upTo int64) []byte {
	var out []byte
	first := -1
	for i, b := range model {
		h := b.Header()
		if h.LastOffset() < from || h.LastOffset() >= upTo && h.BaseOffset+int64(h.LastOffsetDelta) >= upTo {
			if h.LastOffset() < from {
				continue
			}
			break
		}
		if first >= 0 && b.segment != model[first].segment {
			break
		}
		if first < 0 {
			first = i
		}
		out = append(out, b.Batch...)
	}
	if first < 0 {
		return nil
	}
	limit := maxBytes
	if size := len(model[first].Batch); size > maxBytes {
		if limit = 0; minOne {
			limit = size
		}
	}
	return out[:min(len(out), limit)]
}

func TestReadAgainstModel(t *testing.T) {
	for seed := range 30 {
		rng := seeded(seed)
		l, model := buildModel(t, rng, Settings{SegmentBytes: int32(300 + rng.IntN(4000)), IndexIntervalBytes: int32(rng.IntN(1000)), SegmentIndexBytes: 4000})
		for range 400 {
			from := rng.Int64N(l.End() + 1)
			upTo := rng.Int64N(l.End() + 1)
			if rng.IntN(3) == 0 {
				upTo = l.End()
			} else if i := rng.IntN(len(model)); true {
				upTo = model[i].Header().BaseOffset // upper bounds are borders of batches
			}
			maxBytes, minOne := rng.IntN(2500), rng.IntN(2) == 0
			s, err := l.Read(from, maxBytes, minOne, upTo)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			var want []byte
			if from < upTo {
				want = expect(model, from, maxBytes, minOne, upTo)
			}
			var got bytes.Buffer
			if _, err := s.WriteTo(&got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("seed %d: read(%d, %d, %v, %d) gave %d bytes, want %d", seed, from, maxBytes, minOne, upTo, got.Len(), len(want))
			}
			if bound, err := s.UpperBound(); err != nil || s.Len > 0 && bound < lastOffset(want) {
				t.Fatalf("seed %d: upper bound %d, %v", seed, bound, err)
			}
			s.Release()
		}
	}
}

func lastOffset(data []byte) int64 {
	last := int64(-1)
	for {
		b, rest, err := protocol.SplitBatch(data)
		if err != nil {
			return last
		}
		last, data = b.Header().LastOffset(), rest
	}
}

func TestBatchesAndDistanceAgainstModel(t *testing.T) {
	for seed := range 20 {
		rng := seeded(seed)
		l, model := buildModel(t, rng, Settings{SegmentBytes: 1500, IndexIntervalBytes: 200, SegmentIndexBytes: 4000})
		for range 60 {
			from := rng.Int64N(l.End() + 1)
			to := from + rng.Int64N(l.End()-from+1)
			var want []protocol.Batch
			var distance int64
			for _, b := range model {
				h := b.Header()
				if h.LastOffset() >= from {
					want = append(want, b.Batch)
				}
				// A hole counts to what is behind it.
				if h.LastOffset() >= from && h.LastOffset() < to {
					distance += int64(h.Size)
				}
			}
			checkBatches(t, collect(t, l, from), want)
			got, err := l.Distance(from, to)
			if err != nil || got != distance {
				t.Fatalf("seed %d: distance(%d, %d) is %d, want %d; %v", seed, from, to, got, distance, err)
			}
		}
	}
}

func TestTimestampsAgainstModel(t *testing.T) {
	for seed := range 30 {
		rng := seeded(seed)
		l, model := buildModel(t, rng, Settings{SegmentBytes: 1500, IndexIntervalBytes: int32(rng.IntN(500)), SegmentIndexBytes: 4000})
		if err := l.TrimTo(rng.Int64N(l.End() / 2)); err != nil {
			t.Fatal(err)
		}
		var records, all []TimestampOffset
		for _, b := range model {
			h := b.Header()
			for i := range int64(h.NumRecords) {
				r := TimestampOffset{Offset: h.BaseOffset + i, Timestamp: h.BaseTimestamp + i, LeaderEpoch: 3}
				all = append(all, r)
				if r.Offset >= l.Start() {
					records = append(records, r)
				}
			}
		}
		for range 100 {
			ts := 900 + rng.Int64N(5300)
			var want TimestampOffset
			found := false
			for _, r := range records {
				if r.Timestamp >= ts {
					want, found = r, true
					break
				}
			}
			got, ok, err := l.OffsetAt(ts)
			if err != nil || ok != found || got != want {
				t.Fatalf("seed %d: at %d found %+v, %v, %v; want %+v", seed, ts, got, ok, err, want)
			}
		}
		want := all[0]
		for _, r := range all {
			if r.Timestamp > want.Timestamp {
				want = r
			}
		}
		if got, ok, err := l.MaxTimestamp(); err != nil || !ok || got != want {
			t.Fatalf("seed %d: max timestamp %+v, %v; want %+v", seed, got, err, want)
		}
	}
}

// ListOffsets of records without timestamps, and of an empty log.
func TestTimestampsMissing(t *testing.T) {
	m := newMem(t)
	l, _ := mustOpen(t, m, Settings{}, Recovery{})
	if _, ok, err := l.MaxTimestamp(); ok || err != nil {
		t.Errorf("empty log: %v, %v", ok, err)
	}
	if _, ok, err := l.OffsetAt(0); ok || err != nil {
		t.Errorf("empty log: %v, %v", ok, err)
	}
	mustAppend(t, l, makeBatch(t, 0, 2, -1, 100))
	mustAppend(t, l, makeBatch(t, 2, 2, -1, 100))
	if got, ok, err := l.MaxTimestamp(); !ok || err != nil || got.Offset != 0 || got.Timestamp != -1 {
		t.Errorf("no timestamps: %+v, %v, %v", got, ok, err)
	}
	if _, ok, err := l.OffsetAt(0); ok || err != nil {
		t.Errorf("no timestamps: %v, %v", ok, err)
	}
	if ts, err := l.LargestTimestamp(0); err != nil || ts != clock.UnixMilli() {
		t.Errorf("largest timestamp %d, want the file's time; %v", ts, err)
	}
}

func TestReadOutOfRange(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{}, Recovery{LogStart: 5})
	if l.Start() != 5 || l.End() != 5 {
		t.Fatalf("[%d, %d)", l.Start(), l.End())
	}
	mustAppend(t, l, makeBatch(t, 5, 3, 1000, 100))
	for _, offset := range []int64{-1, 4, 9} {
		if _, err := l.Read(offset, 100, true, l.End()); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("read at %d: %v", offset, err)
		}
		if _, err := l.Distance(offset, 10); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("distance from %d: %v", offset, err)
		}
		for _, err := range l.Batches(offset) {
			if !errors.Is(err, ErrOutOfRange) {
				t.Errorf("batches from %d: %v", offset, err)
			}
		}
	}
	s, err := l.Read(8, 100, true, l.End())
	if err != nil || s.Len != 0 || s.File() != nil {
		t.Errorf("read at the end: %+v, %v", s, err)
	}
	s.Release()
}

func TestSliceIsBounded(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{}, Recovery{})
	mustAppend(t, l, makeBatch(t, 0, 1, 1000, 100))
	first := mustAppend(t, l, makeBatch(t, 1, 1, 1000, 100))
	s, err := l.Read(0, 1<<20, true, 1)
	if err != nil || int64(s.Len) != first.Position {
		t.Fatalf("%+v, %v", s, err)
	}
	defer s.Release()
	buf := make([]byte, s.Len+10)
	if n, err := s.ReadAt(buf, 0); n != s.Len || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.ReadAt(buf, int64(s.Len)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.ReadAt(buf[:3], 1); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
