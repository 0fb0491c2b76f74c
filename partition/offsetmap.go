package partition

import (
	"encoding/binary"
	"math/bits"

	"oncelog/protocol"
)

// offsetMap is the last offset of each key, for one cleaning: an open-addressing table of numbers of entries, which lie in chunks
// that are allocated as they are needed. It grows up to a bound.
type offsetMap struct {
	limit  int     // most keys
	load   float64 // how full the table gets
	slots  []uint32
	chunks [][]keyOffset // of chunkKeys each
	count  int
	// latest is the last offset that the map stands for: what lies behind was not looked at.
	latest int64
}

type keyOffset struct {
	id     protocol.KeyID
	offset int64
}

const (
	chunkKeys    = 4096
	firstSlots   = 2 * chunkKeys
	keyBytes     = 24 // of a keyOffset
	slotBytes    = 4
	maxMapBytes  = 2 << 30 // Kafka's limit for one thread
	minMapKeys   = 1000
	minMapLoad   = 0.1
	maxMapLoad   = 0.95
	offsetAbsent = -1
)

// newOffsetMap makes a map that takes at most some bytes, of which it allocates nothing yet. The load factor bounds how full the table gets.
func newOffsetMap(maxBytes int64, load float64) *offsetMap {
	load = min(max(load, minMapLoad), maxMapLoad)
	// A key takes its entry, its share of the slots, and while the table grows of the smaller one before.
	perKey := keyBytes + 1.5*slotBytes/load
	return &offsetMap{limit: max(minMapKeys, int(float64(min(maxBytes, maxMapBytes))/perKey)), load: load, latest: offsetAbsent}
}

// put notes a key's offset. It reports false, and notes nothing, if the key is new and the map full.
func (m *offsetMap) put(id *protocol.KeyID, offset int64) bool {
	if m.count >= int(m.load*float64(len(m.slots))) && !m.grow() {
		e, _ := m.find(id)
		if e == nil {
			return false
		}
		e.offset = offset
		return true
	}
	e, slot := m.find(id)
	if e != nil {
		e.offset = offset
		return true
	}
	if m.count == len(m.chunks)*chunkKeys {
		m.chunks = append(m.chunks, make([]keyOffset, chunkKeys))
	}
	m.chunks[m.count/chunkKeys][m.count%chunkKeys] = keyOffset{*id, offset}
	m.count++
	m.slots[slot] = uint32(m.count)
	return true
}

// get gives the offset of a key, -1 if it isn't there.
func (m *offsetMap) get(id *protocol.KeyID) int64 {
	if e, _ := m.find(id); e != nil {
		return e.offset
	}
	return offsetAbsent
}

// find gives the key's entry, or the free slot for it.
func (m *offsetMap) find(id *protocol.KeyID) (*keyOffset, int) {
	n := len(m.slots)
	if n == 0 {
		return nil, 0
	}
	for i := slotOf(id, n); ; {
		number := m.slots[i]
		if number == 0 {
			return nil, i
		}
		if e := &m.chunks[(number-1)/chunkKeys][(number-1)%chunkKeys]; e.id == *id {
			return e, i
		}
		if i++; i == n {
			i = 0
		}
	}
}

func slotOf(id *protocol.KeyID, n int) int {
	high, _ := bits.Mul64(binary.BigEndian.Uint64(id[:]), uint64(n))
	return int(high)
}

// grow makes the table larger. It reports whether there is room for another key then.
func (m *offsetMap) grow() bool {
	most := int(float64(m.limit)/m.load) + 1
	n := min(max(firstSlots, 2*len(m.slots)), most)
	if m.count >= m.limit || n <= len(m.slots) {
		return false
	}
	m.slots = make([]uint32, n)
	for k := range m.count {
		id := &m.chunks[k/chunkKeys][k%chunkKeys].id
		i := slotOf(id, n)
		for m.slots[i] != 0 {
			if i++; i == n {
				i = 0
			}
		}
		m.slots[i] = uint32(k + 1)
	}
	return true
}

// used is how full the map is, from 0 to 1.
func (m *offsetMap) used() float64 { return float64(m.count) / float64(m.limit) }
