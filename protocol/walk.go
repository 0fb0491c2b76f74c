package protocol

import (
	"fmt"
	"math"
)

// RecordInfo is what Walk tells about a record.
type RecordInfo struct {
	Index          int   // in the batch, from 0
	Length         int32 // bytes behind the length varint
	TimestampDelta int64 // ms
	OffsetDelta    int32
	NullKey        bool
	NullValue      bool // a tombstone, in a compacted topic
}

// Walk validates every record of the batch, in constant memory however large a record is, and shows each to visit (which may be nil), whose
// error ends the walk and is returned. limit is the most bytes that one record of a compressed batch may have
// (max.decompressed.message.bytes). Errors: ErrInvalid for what a record cannot be, more records than the header counts or less, and
// lengths beyond limit; ErrDecompress for a payload that its codec cannot read.
func (b Batch) Walk(limit int64, visit func(RecordInfo) error) error {
	return b.walk(limit, nil, visit)
}

// WalkKeys is Walk without a limit for one record; id is that of the key of the record that visit is shown, if it isn't null.
func (b Batch) WalkKeys(visit func(r RecordInfo, id *KeyID) error) error {
	var id KeyID
	return b.walk(math.MaxInt32, &id, func(r RecordInfo) error { return visit(r, &id) })
}

func (b Batch) walk(limit int64, id *KeyID, visit func(RecordInfo) error) error {
	c, err := b.cursor()
	if err != nil {
		return err
	}
	defer c.close()
	if c.src == nil {
		limit = math.MaxInt64
	}
	for i := range int(b.Header().NumRecords) {
		info := RecordInfo{Index: i}
		if id != nil || !c.usual(&info, limit) {
			if err := c.walk(&info, limit, id); err != nil {
				return fmt.Errorf("record %d: %w", i, err)
			}
		}
		if visit != nil {
			if err := visit(info); err != nil {
				return err
			}
		}
	}
	return c.atEnd()
}

// atEnd checks that the records end where the header says.
func (c *cursor) atEnd() error {
	more, err := c.rest()
	if err != nil {
		return err
	}
	if more {
		return fmt.Errorf("%w: bytes behind the last record", ErrInvalid)
	}
	return nil
}

// start reads a record up to its key, and returns where the record ends.
func (c *cursor) start(info *RecordInfo, limit int64) (end int64, err error) {
	if info.Length, err = c.varint(); err != nil {
		return 0, err
	}
	if info.Length < 0 || int64(info.Length) > limit {
		return 0, fmt.Errorf("%w: length %d, allowed are %d", ErrInvalid, info.Length, limit)
	}
	end = c.offset() + int64(info.Length)
	if err := c.skip(1); err != nil { // attributes: none exist
		return 0, err
	}
	if info.TimestampDelta, err = c.varlong(); err != nil {
		return 0, err
	}
	info.OffsetDelta, err = c.varint()
	return end, err
}

// usual passes over a record as most are: at hand as a whole, without headers, no field that counts longer than three bytes. It tells whether it was
// one; of another it has read nothing, and says nothing about whether it is valid.
func (c *cursor) usual(info *RecordInfo, limit int64) bool {
	b := c.buf[c.pos:c.end]
	length, n := short(b)
	if n == 0 || length < 0 || int64(length) > limit || int(length) > len(b)-n {
		return false
	}
	total := n + int(length)
	b = b[n:total]
	if len(b) == 0 {
		return false
	}
	b = b[1:] // attributes
	timestamp, n := short(b)
	b = b[n:]
	offset, m := short(b)
	b = b[m:]
	if n == 0 || m == 0 {
		return false
	}
	key, n := short(b)
	if n == 0 || int(key) > len(b)-n {
		return false
	}
	b = b[n+max(int(key), 0):]
	value, n := short(b)
	if n == 0 || int(value) > len(b)-n {
		return false
	}
	b = b[n+max(int(value), 0):]
	if len(b) != 1 || b[0] != 0 { // number of headers
		return false
	}
	info.Length, info.TimestampDelta, info.OffsetDelta = length, int64(timestamp), offset
	info.NullKey, info.NullValue = key < 0, value < 0
	c.pos += total
	return true
}

// short reads a zig-zag varint of one to three bytes. Its length is 0 if there is none.
func short(b []byte) (v int32, n int) {
	switch {
	case len(b) > 0 && b[0] < 0x80:
		v, n = int32(b[0]), 1
	case len(b) > 1 && b[1] < 0x80:
		v, n = int32(b[0]&0x7f)|int32(b[1])<<7, 2
	case len(b) > 2 && b[2] < 0x80:
		v, n = int32(b[0]&0x7f)|int32(b[1]&0x7f)<<7|int32(b[2])<<14, 3
	}
	return v>>1 ^ -(v & 1), n
}

// walk reads one record and keeps nothing of it but its key's id, if that is wanted.
func (c *cursor) walk(info *RecordInfo, limit int64, id *KeyID) error {
	end, err := c.start(info, limit)
	if err != nil {
		return err
	}
	n, err := c.key(end, id)
	if err != nil {
		return err
	}
	info.NullKey = n < 0
	if n, err = c.blob(end); err != nil {
		return err
	}
	info.NullValue = n < 0
	headers, err := c.varint()
	if err != nil {
		return err
	}
	if headers < 0 || int64(headers) > end-c.offset() {
		return fmt.Errorf("%w: %d headers", ErrInvalid, headers)
	}
	for range headers {
		n, err := c.blob(end)
		if err != nil {
			return err
		}
		if n < 0 {
			return fmt.Errorf("%w: header key is null", ErrInvalid)
		}
		if _, err := c.blob(end); err != nil {
			return err
		}
	}
	if c.offset() != end {
		return fmt.Errorf("%w: length %d, read %d", ErrInvalid, info.Length, int64(info.Length)+c.offset()-end)
	}
	return nil
}

// blob passes over a length and as many bytes; a negative length is null.
func (c *cursor) blob(end int64) (int32, error) {
	n, err := c.length(end)
	if err != nil || n <= 0 {
		return n, err
	}
	return n, c.skip(int64(n))
}

// length reads the length of a field that lies before end.
func (c *cursor) length(end int64) (int32, error) {
	n, err := c.varint()
	if err == nil && int64(n) > end-c.offset() {
		err = fmt.Errorf("%w: field of %d bytes is longer than its record", ErrInvalid, n)
	}
	return n, err
}
