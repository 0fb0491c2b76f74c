package protocol

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// BatchSpec says what AppendBatch shall build. A batch without a producer needs -1 in its three producer fields.
type BatchSpec struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Level         int   // of the codec, as in Kafka's compression.*.level; 0: Kafka's default
	BaseTimestamp int64 // ms; records add their TimestampDelta
	MaxTimestamp  int64 // ms; raises the largest timestamp of the records, unless 0
	ProducerID    int64 // -1 none
	ProducerEpoch int16 // -1 none
	BaseSequence  int32 // of the first record; -1 none
	Transactional bool
	Control       bool
	LogAppendTime bool // every record reads as of the largest timestamp
	KeepDeltas    bool // records keep their OffsetDelta (ascending); else they get 0,1,2…
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

// AppendBatch appends a batch of the records (at least one) to dst, and returns that batch alone; it begins at len(dst) of what dst became, so
// append(dst, batch...) costs nothing if dst had the room.
func AppendBatch(dst []byte, spec BatchSpec, records []Record) (Batch, error) {
	if len(records) == 0 {
		return nil, errors.New("a batch without records")
	}
	start := len(dst)
	dst = append(dst, make([]byte, BatchHeaderLen)...)
	h := BatchHeader{
		BaseOffset: spec.BaseOffset, LeaderEpoch: spec.LeaderEpoch, Magic: 2, Attributes: spec.attributes(),
		BaseTimestamp: spec.BaseTimestamp, MaxTimestamp: math.MinInt64, ProducerID: spec.ProducerID,
		ProducerEpoch: spec.ProducerEpoch, BaseSequence: spec.BaseSequence, NumRecords: int32(len(records)),
	}
	for i := range records {
		h.MaxTimestamp = max(h.MaxTimestamp, spec.BaseTimestamp+records[i].TimestampDelta)
	}
	if spec.MaxTimestamp != 0 {
		h.MaxTimestamp = max(h.MaxTimestamp, spec.MaxTimestamp)
	}
	h.LastOffsetDelta = spec.offsetDelta(records, len(records)-1)
	if spec.Codec == CodecNone {
		dst = spec.appendRecords(dst, records)
	} else {
		scratch := scratches.Get().(*[]byte)
		*scratch = spec.appendRecords((*scratch)[:0], records)
		var err error
		dst, err = Compress(dst, *scratch, spec.Codec, spec.Level)
		if cap(*scratch) <= maxPooled {
			scratches.Put(scratch)
		}
		if err != nil {
			return nil, err
		}
	}
	return finish(dst[start:len(dst):len(dst)], h)
}

// finish writes the header with the size and the CRC.
func finish(b Batch, h BatchHeader) (Batch, error) {
	if len(b) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(b))
	}
	h.Size = int32(len(b))
	b.putHeader(h)
	b.seal()
	return b, nil
}

func (s *BatchSpec) attributes() int16 {
	a := int16(s.Codec)
	if s.LogAppendTime {
		a |= attrAppendTime
	}
	if s.Transactional {
		a |= attrTxn
	}
	if s.Control {
		a |= attrControl
	}
	return a
}

func (s *BatchSpec) offsetDelta(records []Record, i int) int32 {
	if s.KeepDeltas {
		return records[i].OffsetDelta
	}
	return int32(i)
}

func (s *BatchSpec) appendRecords(dst []byte, records []Record) []byte {
	for i := range records {
		dst = appendRecord(dst, &records[i], s.offsetDelta(records, i))
	}
	return dst
}

func appendRecord(dst []byte, r *Record, offsetDelta int32) []byte {
	n := 1 + varintLen(r.TimestampDelta) + varintLen(int64(offsetDelta)) + blobLen(r.Key) + blobLen(r.Value) + varintLen(int64(len(r.Headers)))
	for _, h := range r.Headers {
		n += varintLen(int64(len(h.Key))) + len(h.Key) + blobLen(h.Value)
	}
	dst = AppendVarint(dst, int32(n))
	dst = append(dst, 0)
	dst = AppendVarlong(dst, r.TimestampDelta)
	dst = AppendVarint(dst, offsetDelta)
	dst = appendBlob(dst, r.Key)
	dst = appendBlob(dst, r.Value)
	dst = AppendVarint(dst, int32(len(r.Headers)))
	for _, h := range r.Headers {
		dst = AppendVarint(dst, int32(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBlob(dst, h.Value)
	}
	return dst
}

func blobLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func appendBlob(dst, b []byte) []byte {
	if b == nil {
		return AppendVarint(dst, -1)
	}
	return append(AppendVarint(dst, int32(len(b))), b...)
}

// Rebuild appends b to dst as a batch of another codec and returns that batch alone. It streams: a record of any size takes constant memory, and nothing
// grows beyond maxBytes (ErrTooLarge). The header stays but for the codec, the size, the CRC and the last offset delta: records get the offset deltas
// 0,1,2…. b should have passed Walk; limit is Walk's.
func (b Batch) Rebuild(dst []byte, codec Codec, level int, limit int64, maxBytes int) (Batch, error) {
	c, err := b.cursor()
	if err != nil {
		return nil, err
	}
	defer c.close()
	if c.src == nil {
		limit = math.MaxInt64
	}
	start := len(dst)
	out := appender{dst: append(dst, make([]byte, BatchHeaderLen)...), max: start + max(maxBytes, BatchHeaderLen)}
	h := b.Header()
	if codec == CodecNone {
		err = c.renumber(&out, int(h.NumRecords), limit)
	} else {
		err = c.compressTo(&out, codec, level, int(h.NumRecords), limit)
	}
	if err != nil {
		return nil, err
	}
	h.Attributes = h.Attributes&^attrCodecMask | int16(codec)
	h.LastOffsetDelta = h.NumRecords - 1
	return finish(out.dst[start:len(out.dst):len(out.dst)], h)
}

func (c *cursor) compressTo(out *appender, codec Codec, level, n int, limit int64) error {
	e, err := newEncoder(codec, level, out)
	if err != nil {
		return err
	}
	defer e.free()
	if err := c.renumber(e, n, limit); err != nil {
		return err
	}
	return e.Close()
}

// renumber writes n records to w with the offset deltas 0,1,2….
func (c *cursor) renumber(w io.Writer, n int, limit int64) error {
	var prefix []byte
	for i := range n {
		var info RecordInfo
		end, err := c.start(&info, limit)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		rest := end - c.offset()
		if rest < 0 {
			return fmt.Errorf("record %d: %w: length %d", i, ErrInvalid, info.Length)
		}
		if prefix, err = appendPrefix(prefix[:0], rest, info.TimestampDelta, int32(i)); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if _, err := w.Write(prefix); err != nil {
			return err
		}
		if err := c.copyTo(w, rest); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return c.atEnd()
}
