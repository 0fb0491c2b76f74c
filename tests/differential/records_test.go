package differential

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"oncelog/protocol"
)

// batches shows the records of a Fetch: a pair of braces for each batch.
func (p *printer) batches(src []byte) string {
	var all []string
	for len(src) > 0 {
		b, rest, err := protocol.SplitBatch(src)
		if err != nil {
			all = append(all, fmt.Sprintf("+%d", len(src))) // a part of one more
			break
		}
		all = append(all, "{"+strings.Join(p.batch(b), " ")+"}")
		src = rest
	}
	if one := "[" + strings.Join(all, " ") + "]"; len(p.indent)+len(one) < lineWidth || len(all) < 2 {
		return one
	}
	sep := "\n" + p.indent + "  "
	return "[" + sep + strings.Join(all, sep) + "]"
}

// batch gives the offsets, what is special, and the records.
func (p *printer) batch(b protocol.Batch) []string {
	h := b.Header()
	words := []string{fmt.Sprintf("%d-%d", h.BaseOffset, h.LastOffset())}
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(b.CheckCRC() != nil, "crc=bad")
	add(h.LeaderEpoch != 0, "leader=%d", h.LeaderEpoch)
	add(h.Codec() != protocol.CodecNone, "codec=%v", h.Codec())
	add(h.ProducerID != -1, "pid=%s", p.names.number(kindProducer, h.ProducerID))
	add(h.ProducerID != -1 || h.ProducerEpoch != -1, "epoch=%d", h.ProducerEpoch)
	add(h.BaseSequence != -1, "seq=%d", h.BaseSequence)
	add(h.Transactional(), "txn=1")
	add(h.LogAppendTime(), "appended")
	add(h.Attributes&^0x3f != 0, "attrs=%#x", uint16(h.Attributes&^0x3f))
	records, times, err := p.records(b, h)
	largest := int64(math.MinInt64)
	shown := make([]string, 0, len(times))
	for i, ts := range times {
		largest = max(largest, ts)
		if text := p.time(ts); i == 0 || text != shown[len(shown)-1] {
			shown = append(shown, text)
		}
	}
	add(len(shown) > 1 || len(shown) == 1 && shown[0] != "now", "ts=%s", strings.Join(shown, ","))
	add(h.MaxTimestamp != largest, "max=%s", p.time(h.MaxTimestamp))
	add(int(h.NumRecords) != len(times), "count=%d", h.NumRecords)
	add(err != nil, "undecodable")
	return append(words, records...)
}

func (p *printer) time(ms int64) string {
	if text, ok := p.names.time(ms); ok {
		return text
	}
	return strconv.FormatInt(ms, 10)
}

func (p *printer) records(b protocol.Batch, h protocol.BatchHeader) (words []string, times []int64, err error) {
	rr := b.Records(64 << 20)
	defer rr.Close()
	for i := int32(0); rr.Next(); i++ {
		r := rr.Record()
		times = append(times, h.Timestamp(r.TimestampDelta))
		text := blobText(r.Value)
		if h.Control() {
			text = controlText(r.Key, r.Value)
		} else if r.Key != nil {
			text = blobText(r.Key) + ":" + text
		}
		for _, hd := range r.Headers {
			text += "^" + hd.Key + ":" + blobText(hd.Value)
		}
		if r.OffsetDelta != i {
			text = fmt.Sprintf("%d@%s", r.OffsetDelta, text)
		}
		words = append(words, p.names.shown(text))
	}
	return words, times, rr.Err()
}

func controlText(key, value []byte) string {
	if len(key) != 4 || len(value) != 6 {
		return fmt.Sprintf("control:%x:%x", key, value)
	}
	kind := "ABORT"
	if key[3] == 1 {
		kind = "COMMIT"
	}
	return fmt.Sprintf("%s/%d", kind, int32(binary.BigEndian.Uint32(value[2:])))
}

func blobText(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 8 && bytes.Count(b, b[:1]) == len(b):
		return fmt.Sprintf("%c*%d", b[0], len(b))
	case plain(string(b)):
		return string(b)
	}
	return strconv.Quote(string(b))
}
