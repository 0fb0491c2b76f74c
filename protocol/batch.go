package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// BatchHeaderLen is the length of the header of a magic-2 batch, in bytes.
const BatchHeaderLen = 61

const (
	frameLen       = 12 // base offset and length field: what the length field does not count
	magicOffset    = 16
	crcOffset      = 17
	crcStart       = 21 // first byte that the CRC covers
	minRecordSize  = 14 // what Kafka calls the minimum record overhead (magic 0)
	attrCodecMask  = 0x07
	attrAppendTime = 1 << 3
	attrTxn        = 1 << 4
	attrControl    = 1 << 5
	attrHorizon    = 1 << 6
)

// What can be wrong with the bytes of a batch. They come wrapped with facts.
var (
	ErrShort    = errors.New("batch is not all there")
	ErrCorrupt  = errors.New("corrupt batch")
	ErrMagic    = errors.New("batch of an old message format")
	ErrTooLarge = errors.New("batch too large")
	ErrInvalid  = errors.New("invalid record")
	// ErrDecompress is the member of the ErrCorrupt family for a payload that its codec cannot read.
	ErrDecompress = fmt.Errorf("%w: payload does not decompress", ErrCorrupt)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is exactly one whole record batch of magic 2: its header and its records, maybe compressed as one blob.
// SplitBatch, AppendBatch and Rebuild make them; its methods read and write in place. A Batch is at least BatchHeaderLen long.
type Batch []byte

// BatchHeader is the header of a batch.
type BatchHeader struct {
	BaseOffset      int64
	Size            int32 // of the whole batch in bytes: its length field + 12
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32 // CRC-32C of everything behind this field
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64 // ms; the delete horizon if HasDeleteHorizon
	MaxTimestamp    int64 // ms; -1 none
	ProducerID      int64 // -1 none
	ProducerEpoch   int16 // -1 none
	BaseSequence    int32 // -1 none
	NumRecords      int32 // 0 in an empty batch that compaction left
}

// LastOffset returns the offset of the last record that the batch had when it was written.
func (h BatchHeader) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// LastSequence returns the sequence of the last record, -1 without sequences. Sequences wrap from MaxInt32 to 0.
func (h BatchHeader) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return -1
	}
	return AddSequence(h.BaseSequence, h.LastOffsetDelta)
}

// AddSequence returns the sequence n records behind seq; it wraps from MaxInt32 to 0.
func AddSequence(seq, n int32) int32 {
	return int32((int64(seq) + int64(n)) & math.MaxInt32)
}

// Codec returns the compression codec, which can be one that does not exist (Codec.Valid).
func (h BatchHeader) Codec() Codec { return Codec(h.Attributes & attrCodecMask) }

// Transactional reports whether the batch belongs to a transaction.
func (h BatchHeader) Transactional() bool { return h.Attributes&attrTxn != 0 }

// Control reports whether the batch holds a control record, not data.
func (h BatchHeader) Control() bool { return h.Attributes&attrControl != 0 }

// LogAppendTime reports whether every record has MaxTimestamp as its timestamp.
func (h BatchHeader) LogAppendTime() bool { return h.Attributes&attrAppendTime != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is the delete horizon of the batch (KIP-534).
func (h BatchHeader) HasDeleteHorizon() bool { return h.Attributes&attrHorizon != 0 }

// Timestamp returns the timestamp, in ms, of a record with that delta.
func (h BatchHeader) Timestamp(delta int64) int64 {
	if h.LogAppendTime() {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp + delta
}

// Header reads the header.
func (b Batch) Header() BatchHeader {
	_ = b[BatchHeaderLen-1]
	return BatchHeader{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		Size:            int32(binary.BigEndian.Uint32(b[8:])) + frameLen,
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[12:])),
		Magic:           int8(b[magicOffset]),
		CRC:             binary.BigEndian.Uint32(b[crcOffset:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[crcStart:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[23:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[53:])),
		NumRecords:      int32(binary.BigEndian.Uint32(b[57:])),
	}
}

func (b Batch) putHeader(h BatchHeader) {
	_ = b[BatchHeaderLen-1]
	binary.BigEndian.PutUint64(b, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(h.Size-frameLen))
	binary.BigEndian.PutUint32(b[12:], uint32(h.LeaderEpoch))
	b[magicOffset] = byte(h.Magic)
	binary.BigEndian.PutUint32(b[crcOffset:], h.CRC)
	binary.BigEndian.PutUint16(b[crcStart:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[23:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[27:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[35:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[43:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[57:], uint32(h.NumRecords))
}

// BatchSize reads how long the batch at the start of src is, from its first bytes; 17 of them are enough to see what it
// is. Errors are those of SplitBatch, ErrShort only for less than 17 bytes. The size is at most 2^31-1.
func BatchSize(src []byte) (int, error) {
	if len(src) < frameLen {
		return 0, ErrShort
	}
	length := int32(binary.BigEndian.Uint32(src[8:]))
	if length < minRecordSize {
		return 0, fmt.Errorf("%w: Record size %d is less than the minimum record overhead (%d)", ErrCorrupt, length, minRecordSize)
	}
	if len(src) <= magicOffset {
		return 0, ErrShort
	}
	switch magic := int8(src[magicOffset]); {
	case magic < 0 || magic > 2:
		return 0, fmt.Errorf("%w: Invalid magic found in record: %d", ErrCorrupt, magic)
	case magic < 2:
		return 0, fmt.Errorf("%w: magic %d", ErrMagic, magic)
	case length > math.MaxInt32-frameLen:
		return 0, fmt.Errorf("%w: length %d", ErrCorrupt, length)
	case length < BatchHeaderLen-frameLen:
		return 0, fmt.Errorf("%w: size %d is smaller than the header's %d", ErrCorrupt, length+frameLen, BatchHeaderLen)
	}
	return int(length) + frameLen, nil
}

// SplitBatch cuts the first whole batch off src; it shares src's bytes and cannot grow into rest.
// ErrShort: src ends before the batch does (an empty src too). ErrCorrupt: its size or its magic cannot be. ErrMagic: it is of magic 0 or 1.
func SplitBatch(src []byte) (b Batch, rest []byte, err error) {
	size, err := BatchSize(src)
	if err != nil {
		return nil, src, err
	}
	if len(src) < size {
		return nil, src, fmt.Errorf("%w: %d of %d bytes", ErrShort, len(src), size)
	}
	return Batch(src[:size:size]), src[size:], nil
}

// CheckCRC compares the checksum of the batch with its bytes: nil or an ErrCorrupt.
func (b Batch) CheckCRC() error {
	want, got := binary.BigEndian.Uint32(b[crcOffset:]), crc32.Checksum(b[crcStart:], castagnoli)
	if want != got {
		return fmt.Errorf("%w: CRC is %#08x, the bytes have %#08x", ErrCorrupt, want, got)
	}
	return nil
}

// Check is the gate for bytes from a client: maxBytes (ErrTooLarge), length, magic and CRC (ErrCorrupt), then the counts and the codec
// (ErrInvalid, ErrCorrupt). It does not look into the records; Walk does.
func (b Batch) Check(maxBytes int) error {
	size, err := BatchSize(b)
	if err != nil {
		return err
	}
	if size > maxBytes {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrTooLarge, size, maxBytes)
	}
	if size != len(b) {
		return fmt.Errorf("%w: length says %d bytes, there are %d", ErrCorrupt, size, len(b))
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	h := b.Header()
	if h.NumRecords <= 0 || int64(h.LastOffsetDelta)+1 != int64(h.NumRecords) {
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrInvalid, h.NumRecords, h.LastOffsetDelta)
	}
	if h.LastOffset() < h.BaseOffset {
		return fmt.Errorf("%w: base offset %d", ErrInvalid, h.BaseOffset)
	}
	if !h.Codec().Valid() {
		return fmt.Errorf("%w: codec %d", ErrDecompress, h.Codec())
	}
	return nil
}

// SetBase writes the base offset and the leader epoch; the CRC does not cover them.
func (b Batch) SetBase(offset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[12:], uint32(leaderEpoch))
}

// SetMaxTimestamp writes the timestamp type and the largest timestamp (ms), and the CRC anew; nothing if both are so already.
func (b Batch) SetMaxTimestamp(logAppendTime bool, ts int64) {
	attributes := binary.BigEndian.Uint16(b[crcStart:])
	want := attributes &^ attrAppendTime
	if logAppendTime {
		want |= attrAppendTime
	}
	if want == attributes && int64(binary.BigEndian.Uint64(b[35:])) == ts {
		return
	}
	binary.BigEndian.PutUint16(b[crcStart:], want)
	binary.BigEndian.PutUint64(b[35:], uint64(ts))
	b.seal()
}

// seal writes the CRC.
func (b Batch) seal() {
	binary.BigEndian.PutUint32(b[crcOffset:], crc32.Checksum(b[crcStart:], castagnoli))
}
