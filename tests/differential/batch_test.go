package differential

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// batchText is what batch(...) says: records, and how their batch is special.
type batchText struct {
	names   *names
	batch   kmsg.RecordBatch
	records []kmsg.Record
	times   []int64
	deltas  []int64
	codec   protocol.Codec
	level   int

	setMax, setCount, setLast bool
	badCRC                    bool
	patches, late             []patch // before and after the CRC is made
	cut                       int     // keep so many bytes; -1 all
	tail                      []byte
}

type patch struct {
	at    int
	bytes []byte
}

// batch builds what batch(words) stands for. Words are records (value, key:value, null, x*600 for many x, with ^name:value
// for each header) and options (name=value).
func (n *names) batch(text string) ([]byte, error) {
	b := &batchText{names: n, cut: -1}
	b.batch = kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	for _, w := range strings.Fields(text) {
		name, value, ok := strings.Cut(w, "=")
		var err error
		switch {
		case !ok:
			b.records = append(b.records, recordOf(w))
		default:
			err = b.option(name, value)
		}
		if err != nil {
			return nil, fmt.Errorf("batch: %s: %w", w, err)
		}
	}
	return b.build()
}

func recordOf(w string) kmsg.Record {
	parts := strings.Split(w, "^")
	var r kmsg.Record
	key, value, ok := strings.Cut(parts[0], ":")
	if !ok {
		key, value = "null", key
	}
	r.Key, r.Value = blobOf(key), blobOf(value)
	for _, p := range parts[1:] {
		name, value, ok := strings.Cut(p, ":")
		if !ok {
			value = "null"
		}
		r.Headers = append(r.Headers, kmsg.Header{Key: name, Value: blobOf(value)})
	}
	return r
}

func blobOf(w string) []byte {
	if w == "null" {
		return nil
	}
	if text, count, ok := strings.Cut(w, "*"); ok {
		if n, err := strconv.Atoi(count); err == nil {
			return bytes.Repeat([]byte(text), n)
		}
	}
	return []byte(w)
}

func (b *batchText) option(name, value string) error {
	switch name {
	case "crc":
		b.badCRC = value == "bad"
		return nil
	case "codec":
		var ok bool
		if b.codec, ok = protocol.ParseCodec(value); !ok {
			return fmt.Errorf("no such codec")
		}
		return nil
	case "ts", "deltas":
		for _, t := range strings.Split(value, ",") {
			v, err := b.names.integer(t)
			if err != nil {
				return err
			}
			if name == "ts" {
				b.times = append(b.times, v)
			} else {
				b.deltas = append(b.deltas, v)
			}
		}
		return nil
	case "patch", "late":
		at, text, _ := strings.Cut(value, ":")
		data, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(at)
		if name == "late" {
			b.late = append(b.late, patch{n, data})
		} else {
			b.patches = append(b.patches, patch{n, data})
		}
		return err
	case "tail":
		var err error
		b.tail, err = hex.DecodeString(value)
		return err
	}
	return b.number(name, value)
}

func (b *batchText) number(name, value string) error {
	if name == "pid" {
		b.names.made[string(kindProducer)+value] = b.names.byValue[string(kindProducer)+value] == ""
	}
	v, err := b.names.integer(value)
	switch name {
	case "pid":
		b.batch.ProducerID = v
	case "epoch":
		b.batch.ProducerEpoch = int16(v)
	case "seq":
		b.batch.FirstSequence = int32(v)
	case "txn":
		b.batch.Attributes |= int16(v) << 4
	case "control":
		b.batch.Attributes |= int16(v) << 5
	case "attrs":
		b.batch.Attributes |= int16(v)
	case "base":
		b.batch.FirstOffset = v
	case "leader":
		b.batch.PartitionLeaderEpoch = int32(v)
	case "max":
		b.batch.MaxTimestamp, b.setMax = v, true
	case "count":
		b.batch.NumRecords, b.setCount = int32(v), true
	case "last":
		b.batch.LastOffsetDelta, b.setLast = int32(v), true
	case "cut":
		b.cut = int(v)
	case "n": // that many small records
		for i := range v {
			b.records = append(b.records, kmsg.Record{Value: strconv.AppendInt(nil, i, 10)})
		}
	default:
		return fmt.Errorf("no such option")
	}
	return err
}

func (b *batchText) build() ([]byte, error) {
	if len(b.times) == 0 {
		b.times = []int64{b.names.now.UnixMilli()}
	}
	var body []byte
	largest := int64(math.MinInt64)
	b.batch.FirstTimestamp = b.times[0]
	for i, r := range b.records {
		ts := b.times[min(i, len(b.times)-1)]
		largest = max(largest, ts)
		r.TimestampDelta64, r.OffsetDelta = ts-b.times[0], int32(i)
		if i < len(b.deltas) {
			r.OffsetDelta = int32(b.deltas[i])
		}
		r.Length = 0
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		body = r.AppendTo(body)
		if !b.setLast {
			b.batch.LastOffsetDelta = r.OffsetDelta
		}
	}
	if !b.setMax {
		b.batch.MaxTimestamp = max(largest, b.times[0])
	}
	if !b.setCount {
		b.batch.NumRecords = int32(len(b.records))
	}
	if b.codec != protocol.CodecNone {
		b.batch.Attributes |= int16(b.codec)
		var err error
		if body, err = protocol.Compress(nil, body, b.codec, b.level); err != nil {
			return nil, err
		}
	}
	b.batch.Records = body
	b.batch.Length = int32(49 + len(body))
	raw := b.batch.AppendTo(nil)
	apply(raw, b.patches)
	crc := crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))
	if b.badCRC {
		crc ^= 1
	}
	binary.BigEndian.PutUint32(raw[17:], crc)
	apply(raw, b.late)
	if b.cut >= 0 {
		raw = raw[:b.cut]
	}
	return append(raw, b.tail...), nil
}

// apply overwrites bytes; an offset below 0 counts from the end.
func apply(raw []byte, ps []patch) {
	for _, p := range ps {
		if p.at < 0 {
			p.at += len(raw)
		}
		copy(raw[p.at:], p.bytes)
	}
}

// messageSet builds messages of the formats before batches: the magic first, then the values.
func messageSet(text string) ([]byte, error) {
	words := strings.Fields(text)
	magic, err := strconv.Atoi(words[0])
	if err != nil {
		return nil, err
	}
	var set []byte
	for i, w := range words[1:] {
		body := []byte{byte(magic), 0}
		if magic == 1 {
			body = binary.BigEndian.AppendUint64(body, 1000)
		}
		body = binary.BigEndian.AppendUint32(body, math.MaxUint32) // no key
		body = binary.BigEndian.AppendUint32(body, uint32(len(w)))
		body = append(body, w...)
		set = binary.BigEndian.AppendUint64(set, uint64(i))
		set = binary.BigEndian.AppendUint32(set, uint32(4+len(body)))
		set = binary.BigEndian.AppendUint32(set, crc32.ChecksumIEEE(body))
		set = append(set, body...)
	}
	return set, nil
}
