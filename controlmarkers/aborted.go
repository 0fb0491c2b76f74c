package controlmarkers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// EntrySize is the length of one entry of a `.txnindex` file in bytes.
const EntrySize = 34

// ErrIndex is what can't be read as an index of aborted transactions.
var ErrIndex = errors.New("invalid transaction index")

// Aborted is one transaction that ended with an abort marker.
type Aborted struct {
	ProducerID int64
	First      int64 // offset of its first record
	Last       int64 // offset of its marker
	LastStable int64 // the last stable offset just after it: the first offset of the oldest other open one, else Last+1
}

// Append appends the entry's bytes to dst.
func (a Aborted) Append(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, 0, 0)
	dst = be.AppendUint64(dst, uint64(a.ProducerID))
	dst = be.AppendUint64(dst, uint64(a.First))
	dst = be.AppendUint64(dst, uint64(a.Last))
	return be.AppendUint64(dst, uint64(a.LastStable))
}

// ParseAborted reads one entry from the first EntrySize bytes of src. The error wraps ErrIndex.
func ParseAborted(src []byte) (Aborted, error) {
	if len(src) < EntrySize {
		return Aborted{}, fmt.Errorf("entry of %d bytes: %w", len(src), ErrIndex)
	}
	be := binary.BigEndian
	if v := int16(be.Uint16(src)); v != 0 {
		return Aborted{}, fmt.Errorf("entry version %d: %w", v, ErrIndex)
	}
	return Aborted{
		ProducerID: int64(be.Uint64(src[2:])),
		First:      int64(be.Uint64(src[10:])),
		Last:       int64(be.Uint64(src[18:])),
		LastStable: int64(be.Uint64(src[26:])),
	}, nil
}

// Index is the aborted transactions of one segment, by ascending Last. Invariant: no two have the same Last.
type Index []Aborted

// ParseIndex reads the content of a `.txnindex` file whose segment begins at base. It checks what must hold of it: whole
// entries, markers at or above base, in ascending order. The error wraps ErrIndex.
func ParseIndex(src []byte, base int64) (Index, error) {
	if len(src)%EntrySize != 0 {
		return nil, fmt.Errorf("%d bytes: %w", len(src), ErrIndex)
	}
	x := make(Index, 0, len(src)/EntrySize)
	for ; len(src) > 0; src = src[EntrySize:] {
		a, err := ParseAborted(src)
		if err != nil {
			return nil, err
		}
		if a.Last < base {
			return nil, fmt.Errorf("marker at %d in segment %d: %w", a.Last, base, ErrIndex)
		}
		if x, err = x.Add(a); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Add appends an entry. The error wraps ErrIndex, if its marker isn't behind all others.
func (x Index) Add(a Aborted) (Index, error) {
	if n := len(x); n > 0 && a.Last <= x[n-1].Last {
		return x, fmt.Errorf("marker at %d after one at %d: %w", a.Last, x[n-1].Last, ErrIndex)
	}
	return append(x, a), nil
}

// Truncate drops the entries whose marker is at or above offset.
func (x Index) Truncate(offset int64) Index { return x[:x.Search(offset)] }

// Search gives the position of the first entry whose marker is at or above offset.
func (x Index) Search(offset int64) int {
	return sort.Search(len(x), func(i int) bool { return x[i].Last >= offset })
}

// Collect appends to dst the transactions of this segment that a reader of the offsets [from, to) has to know: those whose
// marker is at or above from and that began below to. It reports whether the following segments need not be searched.
//
// An entry with a marker below from must not be told: the reader would drop what the same producer committed later.
func (x Index) Collect(dst []Aborted, from, to int64) (found []Aborted, complete bool) {
	for _, a := range x[x.Search(from):] {
		if a.First < to {
			dst = append(dst, a)
		}
		if a.LastStable >= to {
			return dst, true
		}
	}
	return dst, false
}

// LastStable gives the last stable offset of a partition: the offset below which every transaction has ended with a
// marker below the high watermark. firstUnstable is the first offset of the oldest one that hasn't, -1 if there is none.
func LastStable(firstUnstable, highWatermark int64) int64 {
	if firstUnstable >= 0 && firstUnstable < highWatermark {
		return firstUnstable
	}
	return highWatermark
}
