package controlmarkers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"oncelog/protocol"
)

// Size of a marker batch in bytes.
const Size = 78

// ErrMarker is what can't be read as a marker.
var ErrMarker = errors.New("invalid control record")

// Marker ends the open transaction of one producer in one partition.
type Marker struct {
	Commit           bool  // abort otherwise
	CoordinatorEpoch int32 // leader epoch of the transaction coordinator's partition; -1 if none is known
}

const (
	typeAbort  = 0
	typeCommit = 1

	keyMin   = 4 // bytes of a key that have to be there
	valueMin = 6 // the same for a value
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends to dst the batch of a marker: base offset 0 and leader epoch -1, which are the log's to fill in.
// The timestamp is in milliseconds since 1970.
func Append(dst []byte, m Marker, producerID int64, producerEpoch int16, timestamp int64) []byte {
	at := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, Size-12)
	dst = be.AppendUint32(dst, 0xffffffff)
	dst = append(dst, 2)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint16(dst, 0x30)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, uint64(timestamp))
	dst = be.AppendUint64(dst, uint64(producerID))
	dst = be.AppendUint16(dst, uint16(producerEpoch))
	dst = be.AppendUint32(dst, 0xffffffff)
	dst = be.AppendUint32(dst, 1)
	// The lengths are zig-zag varints below 64, so each is one byte of twice its value.
	dst = append(dst, 2*16, 0, 0, 0, 2*keyMin)
	dst = AppendKey(dst, m)
	dst = append(dst, 2*valueMin)
	dst = AppendValue(dst, m)
	dst = append(dst, 0)
	be.PutUint32(dst[at+17:], crc32.Checksum(dst[at+21:], castagnoli))
	return dst
}

// AppendKey appends the key of a marker's record to dst.
func AppendKey(dst []byte, m Marker) []byte {
	kind := uint16(typeAbort)
	if m.Commit {
		kind = typeCommit
	}
	return binary.BigEndian.AppendUint16(append(dst, 0, 0), kind)
}

// AppendValue appends the value of a marker's record to dst.
func AppendValue(dst []byte, m Marker) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0, 0), uint32(m.CoordinatorEpoch))
}

// Encode gives the batch of a marker; see Append.
func Encode(m Marker, producerID int64, producerEpoch int16, timestamp int64) protocol.Batch {
	return protocol.Batch(Append(make([]byte, 0, Size), m, producerID, producerEpoch, timestamp))
}

// Decode reads the marker in a control batch. It reports false for a batch that holds none: compaction took its record,
// or its type is of no concern to a partition. The error wraps ErrMarker.
func Decode(b protocol.Batch) (Marker, bool, error) {
	if len(b) < protocol.BatchHeaderLen {
		return Marker{}, false, fmt.Errorf("batch of %d bytes: %w", len(b), ErrMarker)
	}
	if b.Header().NumRecords == 0 {
		return Marker{}, false, nil
	}
	// A marker of a foreign writer may be longer than ours, but never beyond what one batch of it has.
	r := b.Records(int64(len(b)))
	defer r.Close()
	if !r.Next() {
		return Marker{}, false, fmt.Errorf("%w: %w", ErrMarker, r.Err())
	}
	rec := r.Record()
	return DecodeRecord(rec.Key, rec.Value)
}

// DecodeRecord reads the key and the value of a control record; see Decode.
func DecodeRecord(key, value []byte) (Marker, bool, error) {
	if len(key) < keyMin {
		return Marker{}, false, fmt.Errorf("key of %d bytes: %w", len(key), ErrMarker)
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return Marker{}, false, fmt.Errorf("key version %d: %w", v, ErrMarker)
	}
	kind := binary.BigEndian.Uint16(key[2:])
	if kind != typeAbort && kind != typeCommit {
		return Marker{}, false, nil
	}
	if len(value) < valueMin {
		return Marker{}, false, fmt.Errorf("value of %d bytes: %w", len(value), ErrMarker)
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 {
		return Marker{}, false, fmt.Errorf("value version %d: %w", v, ErrMarker)
	}
	return Marker{Commit: kind == typeCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(value[2:]))}, true, nil
}
