package protocol

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
)

// KeyID stands for a record's key: half of its SHA-256. Nobody can make two keys that have the same.
type KeyID [16]byte

// key passes over a key, as blob does, and gives its id if that is wanted.
func (c *cursor) key(end int64, id *KeyID) (int32, error) {
	n, err := c.length(end)
	if err != nil || n < 0 || id == nil {
		if err == nil && n > 0 {
			err = c.skip(int64(n))
		}
		return n, err
	}
	if n <= windowSize {
		if err := c.fill(int(n)); err != nil {
			return n, premature(err)
		}
		sum := sha256.Sum256(c.buf[c.pos : c.pos+int(n)])
		copy(id[:], sum[:])
		c.pos += int(n)
		return n, nil
	}
	sum := sha256.New()
	if err := c.copyTo(sum, int64(n)); err != nil {
		return n, err
	}
	copy(id[:], sum.Sum(nil))
	return n, nil
}

// Sifting says what Sift leaves of a batch.
type Sifting struct {
	// Keep tells which records stay, by their number in the batch from 0.
	Keep func(index int) bool
	// Horizon is the delete horizon that the batch gets (KIP-534), in ms. 0: it keeps the one that it has, if any.
	Horizon int64
}

// Sift appends to dst what compaction leaves of b, and returns that batch alone: the same codec, offsets, sequence, producer and leader
// epoch, and of the records those that are kept, with their timestamps. Without any it is the header alone, as Kafka leaves it: not
// compressed, without a delete horizon, the base timestamp -1. It streams: a record of any size takes constant memory.
func (b Batch) Sift(dst []byte, s Sifting) (Batch, error) {
	c, err := b.cursor()
	if err != nil {
		return nil, err
	}
	defer c.close()
	start := len(dst)
	out := appender{dst: append(dst, make([]byte, BatchHeaderLen)...), max: -1}
	h := b.Header()
	n := h.NumRecords
	h.Attributes &= attrCodecMask | attrAppendTime | attrTxn | attrControl | attrHorizon
	h.NumRecords = 0
	if codec := h.Codec(); codec == CodecNone {
		err = c.sift(&out, &h, int(n), s)
	} else {
		err = c.siftTo(&out, codec, &h, int(n), s)
	}
	if err != nil {
		return nil, err
	}
	if h.NumRecords == 0 {
		out.dst = out.dst[:start+BatchHeaderLen]
		h = b.Header()
		h.Attributes &= attrAppendTime | attrTxn | attrControl
		h.BaseTimestamp, h.NumRecords = -1, 0
	}
	return finish(out.dst[start:len(out.dst):len(out.dst)], h)
}

func (c *cursor) siftTo(out *appender, codec Codec, h *BatchHeader, n int, s Sifting) error {
	e, err := newEncoder(codec, 0, out)
	if err != nil {
		return err
	}
	defer e.free()
	if err := c.sift(e, h, n, s); err != nil {
		return err
	}
	return e.Close()
}

// sift writes those of n records that are kept to w, and puts what follows from them into h, which is the batch's header with no records.
// As in Kafka the base timestamp becomes that of the first one kept, unless it is a horizon.
func (c *cursor) sift(w io.Writer, h *BatchHeader, n int, s Sifting) error {
	was := *h
	rebase := !was.HasDeleteHorizon()
	if s.Horizon != 0 {
		h.Attributes |= attrHorizon
		h.BaseTimestamp, rebase = s.Horizon, false
	}
	if !was.LogAppendTime() {
		h.MaxTimestamp = -1
	}
	var prefix [32]byte
	for i := range n {
		var info RecordInfo
		end, err := c.start(&info, math.MaxInt32)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		rest := end - c.offset()
		if rest < 0 {
			return fmt.Errorf("record %d: %w: length %d", i, ErrInvalid, info.Length)
		}
		if !s.Keep(i) {
			if err := c.skip(rest); err != nil {
				return fmt.Errorf("record %d: %w", i, err)
			}
			continue
		}
		timestamp := was.Timestamp(info.TimestampDelta)
		if rebase {
			h.BaseTimestamp, rebase = timestamp, false
		}
		h.MaxTimestamp = max(h.MaxTimestamp, timestamp)
		h.NumRecords++
		p, err := appendPrefix(prefix[:0], rest, timestamp-h.BaseTimestamp, info.OffsetDelta)
		if err == nil {
			_, err = w.Write(p)
		}
		if err == nil {
			err = c.copyTo(w, rest)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return c.atEnd()
}

// appendPrefix appends the begin of a record, up to its key; rest is the length of what follows.
func appendPrefix(dst []byte, rest, timestampDelta int64, offsetDelta int32) ([]byte, error) {
	length := rest + int64(1+varintLen(timestampDelta)+varintLen(int64(offsetDelta)))
	if length > math.MaxInt32 {
		return dst, ErrTooLarge
	}
	dst = AppendVarint(dst, int32(length))
	dst = append(dst, 0)
	dst = AppendVarlong(dst, timestampDelta)
	return AppendVarint(dst, offsetDelta), nil
}
