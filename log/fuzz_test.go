package log

import (
	"bytes"
	"encoding/binary"
	"testing"

	"oncelog/protocol"
)

// Recovery of any bytes gives a log of whole, checked batches with rising offsets, which opens cleanly afterwards.
func FuzzRecover(f *testing.F) {
	m := newMem(f)
	batches := three(f, m)
	whole := bytes.Join([][]byte{batches[0], batches[1]}, nil)
	f.Add(whole, []byte{}, []byte{}, int64(0))
	f.Add(whole[:len(whole)-7], []byte("12345678"), []byte("123456789012"), int64(1))
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...), make([]byte, 64), make([]byte, 36), int64(2))
	f.Add([]byte{}, make([]byte, 8), []byte{1}, int64(5))
	f.Add(whole, binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(len(batches[0]))), []byte{0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 1}, int64(2))
	f.Fuzz(func(t *testing.T, data, index, times []byte, point int64) {
		m := newMem(t)
		put(t, m, "/p/"+FileName(0, ExtLog), data)
		put(t, m, "/p/"+FileName(0, ExtIndex), index)
		put(t, m, "/p/"+FileName(0, ExtTimeIndex), times)
		l, _, err := Open(m, "/p", Options{Settings: Settings{IndexIntervalBytes: 100}}, Recovery{RecoveryPoint: point}, clock)
		if err != nil {
			return // of an old format
		}
		next := max(0, min(point, l.End())) // what is below is trusted where the index leads behind it
		from := next
		var got []protocol.Batch
		for b, err := range l.Batches(from) {
			if err != nil {
				t.Fatal(err)
			}
			if err := b.CheckCRC(); err != nil {
				t.Fatal(err)
			}
			if h := b.Header(); h.LastOffset() < next || len(got) > 0 && h.BaseOffset < next {
				t.Fatalf("offset %d after %d", h.BaseOffset, next)
			} else {
				next = h.LastOffset() + 1
			}
			got = append(got, bytes.Clone(b))
		}
		if l.End() != next {
			t.Fatalf("end %d, want %d", l.End(), next)
		}
		b := makeBatch(t, l.End(), 1, 1000, 100)
		mustAppend(t, l, b)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, report := mustOpen(t, m, Settings{}, Recovery{Clean: true})
		if len(report.Scanned) > 0 {
			t.Fatalf("%+v", report)
		}
		checkBatches(t, collect(t, l, from), append(got, b))
	})
}

// Whatever is in the indexes of a trusted log, reads by offset are right, and lookups by time don't fail.
func FuzzIndexes(f *testing.F) {
	m := newMem(f)
	three(f, m)
	f.Add(get(f, m, "/p/"+FileName(0, ExtIndex)), get(f, m, "/p/"+FileName(0, ExtTimeIndex)))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 7}, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 0, 0, 1})
	f.Fuzz(func(t *testing.T, index, times []byte) {
		m := newMem(t)
		batches := three(t, m)
		for _, base := range []int64{0, 4} {
			put(t, m, "/p/"+FileName(base, ExtIndex), index)
			put(t, m, "/p/"+FileName(base, ExtTimeIndex), times)
		}
		l, _ := mustOpen(t, m, Settings{}, Recovery{Clean: true})
		if l.End() != 5 {
			t.Fatalf("end %d", l.End())
		}
		for i, want := range batches {
			s, err := l.Read(int64(i), 1, true, 5)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, s.Len)
			if s.Len > 0 {
				s.ReadAt(got, 0)
			}
			s.Release()
			if !bytes.Equal(got, want) {
				t.Fatalf("offset %d: %d bytes", i, len(got))
			}
		}
		if _, _, err := l.OffsetAt(1002); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.MaxTimestamp(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, makeBatch(t, 5, 1, 1005, 100))
		if _, err := l.TruncateTo(4, clock); err != nil {
			t.Fatal(err)
		}
	})
}
