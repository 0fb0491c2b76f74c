package partition

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"oncelog/protocol"
)

func keyID(r *rand.Rand) (id protocol.KeyID) {
	binary.BigEndian.PutUint64(id[:], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	return id
}

// TestOffsetMap compares with a map of the language.
func TestOffsetMap(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newOffsetMap(1<<20, []float64{0.1, 0.5, 0.9, 1}[seed%4])
		want := map[protocol.KeyID]int64{}
		var ids []protocol.KeyID
		full := false
		for offset := range int64(100_000) {
			id := keyID(r)
			if len(ids) > 0 && r.IntN(2) == 0 {
				id = ids[r.IntN(len(ids))]
			}
			if seed%2 == 1 { // keys that all fall into few slots
				id[0], id[1] = 0xff, 0xff
			}
			_, known := want[id]
			if ok := m.put(&id, offset); ok {
				want[id] = offset
				if !known {
					ids = append(ids, id)
				}
			} else if known {
				t.Fatal("a known key was refused")
			} else {
				full = true
			}
			if seed%2 == 1 && offset > 3000 {
				break
			}
		}
		for id, offset := range want {
			if got := m.get(&id); got != offset {
				t.Fatalf("%x: %d, want %d", id, got, offset)
			}
		}
		if id := keyID(r); m.get(&id) != -1 {
			t.Error("an unknown key has an offset")
		}
		bytes := len(m.chunks)*chunkKeys*int(unsafe.Sizeof(keyOffset{})) + len(m.slots)*slotBytes
		if m.count != len(want) || full != (m.count == m.limit) || bytes > 1<<20+chunkKeys*keyBytes {
			t.Errorf("seed %d: %d keys of %d, %d bytes, full %v", seed, m.count, m.limit, bytes, full)
		}
	}
	if m := newOffsetMap(128<<20, 0.9); m.limit < 4_000_000 || m.chunks != nil || m.slots != nil {
		t.Errorf("%d keys", m.limit)
	}
}

func BenchmarkOffsetMap(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]protocol.KeyID, 1<<20)
	for i := range ids {
		ids[i] = keyID(r)
	}
	b.ReportAllocs()
	for b.Loop() {
		m := newOffsetMap(128<<20, 0.9)
		for i := range ids {
			m.put(&ids[i], int64(i))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/key")
}
