package idempotence

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// ErrSnapshot is what can't be read as a snapshot or a window file.
var ErrSnapshot = errors.New("invalid producer snapshot")

const (
	snapshotVersion = 1
	snapshotHeader  = 10 // bytes before the entries
	entrySize       = 46

	windowVersion   = 1
	windowHeader    = 14 // bytes before the windows
	windowSize      = 17 // bytes of a window without its batches
	windowBatchSize = 24
)

// EmptySnapshotSize is the size of a snapshot without producers, in bytes.
const EmptySnapshotSize = snapshotHeader

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry is one producer in Kafka's snapshot.
type Entry struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // of the newest batch, -1 if none is known
	LastOffset       int64 // of the newest batch, -1 if none is known
	OffsetDelta      int32 // of the newest batch: its last offset less its first
	Timestamp        int64 // of the last batch or marker, by its records
	CoordinatorEpoch int32 // -1 before the first marker
	TxnFirstOffset   int64 // of the open transaction, -1 without one
}

// Window is one producer in our window file.
type Window struct {
	ProducerID int64
	Appended   int64 // when its last batch or marker was appended, by our clock, milliseconds
	batches    []batch
}

func (p *producer) entry(id int64) Entry {
	e := Entry{
		ProducerID: id, Epoch: p.epoch, LastSequence: none, LastOffset: none,
		Timestamp: p.lastTimestamp, CoordinatorEpoch: p.coordinatorEpoch, TxnFirstOffset: p.txnFirst,
	}
	if b := p.newest(); b != nil {
		e.LastSequence, e.LastOffset, e.OffsetDelta = b.lastSequence, b.lastOffset, b.offsetDelta
	}
	return e
}

// AppendSnapshot appends the content of a snapshot file to dst, producers ascending by id.
func (t *Table) AppendSnapshot(dst []byte) []byte {
	at, be := len(dst), binary.BigEndian
	dst = be.AppendUint16(dst, snapshotVersion)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint32(dst, uint32(len(t.producers)))
	for _, id := range slices.Sorted(maps.Keys(t.producers)) {
		e := t.producers[id].entry(id)
		dst = be.AppendUint64(dst, uint64(e.ProducerID))
		dst = be.AppendUint16(dst, uint16(e.Epoch))
		dst = be.AppendUint32(dst, uint32(e.LastSequence))
		dst = be.AppendUint64(dst, uint64(e.LastOffset))
		dst = be.AppendUint32(dst, uint32(e.OffsetDelta))
		dst = be.AppendUint64(dst, uint64(e.Timestamp))
		dst = be.AppendUint32(dst, uint32(e.CoordinatorEpoch))
		dst = be.AppendUint64(dst, uint64(e.TxnFirstOffset))
	}
	seal(dst[at:])
	return dst
}

// ParseSnapshot reads a snapshot file. The error wraps ErrSnapshot.
func ParseSnapshot(src []byte) ([]Entry, error) {
	if err := checkSeal(src, snapshotHeader, snapshotVersion); err != nil {
		return nil, err
	}
	be := binary.BigEndian
	count := int64(int32(be.Uint32(src[6:])))
	src = src[snapshotHeader:]
	if count < 0 || count*entrySize != int64(len(src)) {
		return nil, fmt.Errorf("%d entries in %d bytes: %w", count, len(src), ErrSnapshot)
	}
	entries := make([]Entry, 0, count)
	for ; len(src) > 0; src = src[entrySize:] {
		e := Entry{
			ProducerID:       int64(be.Uint64(src)),
			Epoch:            int16(be.Uint16(src[8:])),
			LastSequence:     int32(be.Uint32(src[10:])),
			LastOffset:       int64(be.Uint64(src[14:])),
			OffsetDelta:      int32(be.Uint32(src[22:])),
			Timestamp:        int64(be.Uint64(src[26:])),
			CoordinatorEpoch: int32(be.Uint32(src[34:])),
			TxnFirstOffset:   int64(be.Uint64(src[38:])),
		}
		if e.OffsetDelta < 0 || e.LastOffset >= 0 && int64(e.OffsetDelta) > e.LastOffset {
			return nil, fmt.Errorf("producer %d: batch of %d offsets ends at %d: %w", e.ProducerID, int64(e.OffsetDelta)+1, e.LastOffset, ErrSnapshot)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// AppendWindows appends to dst the content of the window file that goes with a snapshot file's content.
func (t *Table) AppendWindows(dst, snapshot []byte) []byte {
	at, be := len(dst), binary.BigEndian
	dst = be.AppendUint16(dst, windowVersion)
	dst = be.AppendUint32(dst, 0)
	dst = append(dst, snapshot[2:6]...)
	dst = be.AppendUint32(dst, uint32(len(t.producers)))
	for _, id := range slices.Sorted(maps.Keys(t.producers)) {
		p := t.producers[id]
		dst = be.AppendUint64(dst, uint64(id))
		dst = be.AppendUint64(dst, uint64(p.appended))
		dst = append(dst, p.count)
		for i := range int(p.count) {
			b := p.at(i)
			dst = be.AppendUint32(dst, uint32(b.lastSequence))
			dst = be.AppendUint32(dst, uint32(b.offsetDelta))
			dst = be.AppendUint64(dst, uint64(b.lastOffset))
			dst = be.AppendUint64(dst, uint64(b.timestamp))
		}
	}
	seal(dst[at:])
	return dst
}

// ParseWindows reads the window file that lies beside a valid snapshot. It gives none if the file belongs to another
// snapshot of the same offset. The error wraps ErrSnapshot.
func ParseWindows(src, snapshot []byte) ([]Window, error) {
	if err := checkSeal(src, windowHeader, windowVersion); err != nil {
		return nil, err
	}
	if string(src[6:10]) != string(snapshot[2:6]) {
		return nil, nil
	}
	be := binary.BigEndian
	count := int64(int32(be.Uint32(src[10:])))
	src = src[windowHeader:]
	if count < 0 || count*windowSize > int64(len(src)) {
		return nil, fmt.Errorf("%d windows in %d bytes: %w", count, len(src), ErrSnapshot)
	}
	windows := make([]Window, 0, count)
	for range count {
		if len(src) < windowSize || src[16] > windowBatches || len(src) < windowSize+int(src[16])*windowBatchSize {
			return nil, fmt.Errorf("window cut short: %w", ErrSnapshot)
		}
		w := Window{ProducerID: int64(be.Uint64(src)), Appended: int64(be.Uint64(src[8:]))}
		n := int(src[16])
		src = src[windowSize:]
		for range n {
			w.batches = append(w.batches, batch{
				lastSequence: int32(be.Uint32(src)), offsetDelta: int32(be.Uint32(src[4:])),
				lastOffset: int64(be.Uint64(src[8:])), timestamp: int64(be.Uint64(src[16:])),
			})
			src = src[windowBatchSize:]
		}
		windows = append(windows, w)
	}
	if len(src) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last window: %w", len(src), ErrSnapshot)
	}
	return windows, nil
}

// Restore makes the table what a snapshot and its windows say. A producer without a window is known by its last batch,
// and counts as having appended now: its records' timestamps say nothing of when that was.
func (t *Table) Restore(entries []Entry, windows []Window, nowMillis int64) {
	t.Reset()
	for _, e := range entries {
		p := newProducer()
		p.epoch, p.coordinatorEpoch, p.lastTimestamp = e.Epoch, e.CoordinatorEpoch, e.Timestamp
		p.appended = nowMillis
		if e.LastOffset >= 0 {
			p.add(batch{e.LastSequence, e.OffsetDelta, e.LastOffset, e.Timestamp})
		}
		p.txnFirst = max(e.TxnFirstOffset, none)
		t.producers[e.ProducerID] = p
	}
	for _, w := range windows {
		p := t.producers[w.ProducerID]
		if p == nil {
			continue
		}
		p.appended = min(w.Appended, nowMillis)
		p.count, p.head = 0, 0
		for _, b := range w.batches {
			p.add(b)
		}
	}
	for id, p := range t.producers {
		if p.txnFirst != none {
			t.ongoing = append(t.ongoing, openTxn{p.txnFirst, id, p.appended})
		}
	}
	slices.SortFunc(t.ongoing, func(a, b openTxn) int { return cmp.Compare(a.first, b.first) })
}

// seal writes the CRC of everything behind it.
func seal(file []byte) {
	binary.BigEndian.PutUint32(file[2:], crc32.Checksum(file[6:], castagnoli))
}

func checkSeal(file []byte, header int, version uint16) error {
	if len(file) < header {
		return fmt.Errorf("%d bytes: %w", len(file), ErrSnapshot)
	}
	if v := binary.BigEndian.Uint16(file); v != version {
		return fmt.Errorf("version %d: %w", v, ErrSnapshot)
	}
	if got, want := crc32.Checksum(file[6:], castagnoli), binary.BigEndian.Uint32(file[2:]); got != want {
		return fmt.Errorf("CRC %08x, file says %08x: %w", got, want, ErrSnapshot)
	}
	return nil
}
