package controlmarkers

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"oncelog/protocol"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenMarker is what Kafka 4.4 writes for COMMIT, producer 7, epoch 3, coordinator epoch 5.
const goldenMarker = "0000000000000000 00000042 ffffffff 02 c60df61d 0030 00000000 0000018bcfe56800 0000018bcfe56800" +
	"0000000000000007 0003 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000005 00"

func TestMarkerIsKafkasBytes(t *testing.T) {
	want := unhex(t, goldenMarker)
	got := Encode(Marker{Commit: true, CoordinatorEpoch: 5}, 7, 3, 1700000000000)
	if !bytes.Equal(got, want) || len(got) != Size {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
	if err := got.Check(Size); err != nil {
		t.Fatal(err)
	}
}

func TestMarkerRoundTrip(t *testing.T) {
	for _, m := range []Marker{{}, {Commit: true}, {CoordinatorEpoch: -1}, {Commit: true, CoordinatorEpoch: 1 << 30}} {
		got, ok, err := Decode(Encode(m, 1, 2, 3))
		if err != nil || !ok || got != m {
			t.Errorf("%+v came back as %+v, %v, %v", m, got, ok, err)
		}
	}
}

func TestDecodeRecord(t *testing.T) {
	for _, tt := range []struct {
		name, key, value string
		want             Marker
		ok               bool
		err              error
	}{
		{"abort", "0000 0000", "0000 00000009", Marker{CoordinatorEpoch: 9}, true, nil},
		{"later versions, longer", "0007 0001 ff", "0003 00000009 ff", Marker{Commit: true, CoordinatorEpoch: 9}, true, nil},
		{"leader change", "0000 0002", "", Marker{}, false, nil},
		{"unknown type", "0000 7fff", "00", Marker{}, false, nil},
		{"short key", "0000 00", "0000 00000009", Marker{}, false, ErrMarker},
		{"no value, as some write it", "0000 0001", "", Marker{}, false, ErrMarker},
		{"negative key version", "ffff 0001", "0000 00000009", Marker{}, false, ErrMarker},
		{"negative value version", "0000 0001", "ffff 00000009", Marker{}, false, ErrMarker},
	} {
		got, ok, err := DecodeRecord(unhex(t, tt.key), unhex(t, tt.value))
		if got != tt.want || ok != tt.ok || !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %v, %v", tt.name, got, ok, err)
		}
	}
}

// TestEmptyControlBatch: compaction leaves the header of a marker alone.
func TestEmptyControlBatch(t *testing.T) {
	b := Encode(Marker{}, 1, 2, 3)[:protocol.BatchHeaderLen]
	binary.BigEndian.PutUint32(b[8:], protocol.BatchHeaderLen-12)
	binary.BigEndian.PutUint32(b[57:], 0)
	if _, ok, err := Decode(b); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestIndexIsKafkasBytes(t *testing.T) {
	want := unhex(t, "0000 0000000000000007 0000000000000064 0000000000000096 0000000000000078")
	a := Aborted{ProducerID: 7, First: 100, Last: 150, LastStable: 120}
	if got := a.Append(nil); !bytes.Equal(got, want) || len(got) != EntrySize {
		t.Fatalf("%x", got)
	}
	x, err := ParseIndex(append(a.Append(nil), Aborted{8, 90, 151, 152}.Append(nil)...), 100)
	if err != nil || !reflect.DeepEqual(x, Index{a, {8, 90, 151, 152}}) {
		t.Fatal(x, err)
	}
}

func TestParseIndexRefuses(t *testing.T) {
	a := Aborted{7, 100, 150, 120}
	for name, tt := range map[string]struct {
		data []byte
		base int64
	}{
		"a torn entry":              {a.Append(nil)[:33], 0},
		"a version":                 {append([]byte{0, 1}, a.Append(nil)[2:]...), 0},
		"a marker below the base":   {a.Append(nil), 151},
		"markers not ascending":     {append(a.Append(nil), a.Append(nil)...), 0},
		"markers out of order":      {append(a.Append(nil), Aborted{8, 1, 149, 150}.Append(nil)...), 0},
		"a negative marker":         {Aborted{8, 1, -1, 150}.Append(nil), 0},
		"more than one torn at end": {append(a.Append(nil), 0), 0},
	} {
		if x, err := ParseIndex(tt.data, tt.base); !errors.Is(err, ErrIndex) {
			t.Errorf("%s: %v, %v", name, x, err)
		}
	}
}

// transaction is one of a random history.
type transaction struct {
	producer, first, marker int64
	aborted                 bool
}

// history makes a random log of transactions of a few producers, and the index that follows from it.
func history(r *rand.Rand, n int) (all []transaction, x Index) {
	open := map[int64]int64{}
	for offset := range int64(n) {
		p := r.Int64N(4)
		first, isOpen := open[p]
		switch {
		case !isOpen:
			open[p] = offset
			continue
		case r.IntN(3) > 0:
			continue // one more record
		}
		delete(open, p)
		tx := transaction{p, first, offset, r.IntN(2) == 0}
		all = append(all, tx)
		if tx.aborted {
			stable := offset + 1
			for _, f := range open {
				stable = min(stable, f)
			}
			x = append(x, Aborted{p, first, offset, stable})
		}
	}
	return all, x
}

// TestCollectAgainstScan compares the search in the index with a look at every transaction: none that meets the range may
// be missing, and what is more must not harm.
func TestCollectAgainstScan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all, x := history(r, 60)
		from := r.Int64N(60)
		to := from + r.Int64N(61-from)
		got, _ := x.Collect(nil, from, to)
		var want []Aborted
		for _, tx := range all {
			if tx.aborted && tx.marker >= from && tx.first < to {
				want = append(want, x[x.Search(tx.marker)])
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("[%d, %d) of %v: got %v, want %v", from, to, x, got, want)
		}
	}
}

func TestTruncate(t *testing.T) {
	x := Index{{1, 0, 5, 6}, {2, 3, 9, 10}}
	for end, want := range map[int64]int{4: 0, 5: 0, 6: 1, 9: 1, 10: 2, 99: 2} {
		if got := len(x.Truncate(end)); got != want {
			t.Errorf("truncated to %d: %d entries, want %d", end, got, want)
		}
	}
}

func TestLastStable(t *testing.T) {
	for _, tt := range []struct{ first, hw, want int64 }{{-1, 10, 10}, {0, 10, 0}, {7, 10, 7}, {10, 10, 10}, {12, 10, 10}} {
		if got := LastStable(tt.first, tt.hw); got != tt.want {
			t.Errorf("first unstable %d, high watermark %d: %d", tt.first, tt.hw, got)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add(Aborted{7, 100, 150, 120}.Append(nil), int64(100))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, base int64) {
		x, err := ParseIndex(data, base)
		if err != nil {
			return
		}
		var again []byte
		for _, a := range x {
			again = a.Append(again)
		}
		if !bytes.Equal(again, data) {
			t.Fatalf("%x became %x", data, again)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(Encode(Marker{Commit: true}, 1, 2, 3)))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, _, err := protocol.SplitBatch(data)
		if err != nil {
			return
		}
		if m, ok, err := Decode(b); ok && err == nil && m == (Marker{}) && b.Header().NumRecords == 0 {
			t.Fatal("a marker from nothing")
		}
	})
}
