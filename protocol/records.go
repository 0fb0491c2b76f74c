package protocol

import (
	"fmt"
	"math"
)

// Header is a header of a record. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record of a batch. Nil keys and values are null.
type Record struct {
	Length         int32 // bytes behind the length varint; writers ignore it
	TimestampDelta int64 // ms
	OffsetDelta    int32
	Key, Value     []byte
	Headers        []Header
}

// RecordReader reads the records of a batch one by one, whole. It holds one record in memory at a time, and grows with the bytes that
// a payload really holds. Owned by one goroutine.
type RecordReader struct {
	c      cursor
	left   int32
	index  int
	limit  int64
	record Record
	err    error
}

// Records reads the batch's records. limit is the most bytes that one record of a compressed batch may have, and so of the reader's memory; the
// errors are Walk's. The batch must stay as it is until Close.
func (b Batch) Records(limit int64) *RecordReader {
	r := &RecordReader{left: b.Header().NumRecords, limit: limit}
	if r.left < 0 {
		r.err = fmt.Errorf("%w: %d records", ErrInvalid, r.left)
		return r
	}
	if r.c, r.err = b.cursor(); r.err == nil && r.c.src == nil {
		r.limit = math.MaxInt64
	}
	return r
}

// Next reads the next record; false at the end, and at an error (Err).
func (r *RecordReader) Next() bool {
	if r.err != nil {
		return false
	}
	if r.left == 0 {
		r.err = r.c.atEnd()
		return false
	}
	if err := r.next(); err != nil {
		r.err = fmt.Errorf("record %d: %w", r.index, err)
		return false
	}
	r.left--
	r.index++
	return true
}

func (r *RecordReader) next() error {
	length, err := r.c.varint()
	if err != nil {
		return err
	}
	if length < 0 || int64(length) > r.limit {
		return fmt.Errorf("%w: length %d, allowed are %d", ErrInvalid, length, r.limit)
	}
	if err := r.c.fill(int(length)); err != nil {
		return premature(err)
	}
	body := r.c.buf[r.c.pos : r.c.pos+int(length)]
	r.c.pos += int(length)
	r.record.Length = length
	return r.record.parse(body)
}

// Record returns the record that Next read. It and the bytes it refers to are valid until Next and Close.
func (r *RecordReader) Record() Record { return r.record }

// Err says why Next returned false: nil at the regular end.
func (r *RecordReader) Err() error { return r.err }

// Close gives the decoder back. The reader is not used afterwards.
func (r *RecordReader) Close() { r.c.close() }

// parse reads a record that is body as a whole; keys, values and header values alias it.
func (rec *Record) parse(body []byte) error {
	c := cursor{buf: body, end: len(body)}
	err := c.skip(1)
	if err != nil {
		return err
	}
	if rec.TimestampDelta, err = c.varlong(); err != nil {
		return err
	}
	if rec.OffsetDelta, err = c.varint(); err != nil {
		return err
	}
	if rec.Key, err = c.bytes(); err != nil {
		return err
	}
	if rec.Value, err = c.bytes(); err != nil {
		return err
	}
	n, err := c.varint()
	if err != nil {
		return err
	}
	if n < 0 || int(n) > c.end-c.pos {
		return fmt.Errorf("%w: %d headers", ErrInvalid, n)
	}
	rec.Headers = rec.Headers[:0]
	for range n {
		key, err := c.bytes()
		if err != nil {
			return err
		}
		if key == nil {
			return fmt.Errorf("%w: header key is null", ErrInvalid)
		}
		value, err := c.bytes()
		if err != nil {
			return err
		}
		rec.Headers = append(rec.Headers, Header{Key: string(key), Value: value})
	}
	if c.pos != c.end {
		return fmt.Errorf("%w: length %d, read %d", ErrInvalid, c.end, c.pos)
	}
	return nil
}

// bytes reads a length and as many bytes, nil for null.
func (c *cursor) bytes() ([]byte, error) {
	n, err := c.varint()
	if err != nil || n < 0 {
		return nil, err
	}
	if int(n) > c.end-c.pos {
		return nil, fmt.Errorf("%w: field of %d bytes is longer than its record", ErrInvalid, n)
	}
	b := c.buf[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b, nil
}
