package partition

import (
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/protocol"
)

// shownErrors is how many of a batch's record errors Kafka repeats in the message of the answer.
const shownErrors = 3

// maxRecordErrors bounds the records that an answer names: a small batch can hold any number of bad ones, compressed. It is more
// than fit into an uncompressed batch of the default size.
const maxRecordErrors = 1 << 17

// inspection is the work on a client's batch that needs no lock: the checks of its content, and its conversion to what the
// topic wants.
type inspection struct {
	topic  string
	index  int32
	cfg    *config.Topic
	now    int64 // milliseconds
	header protocol.BatchHeader

	maxTimestamp int64 // largest of the records
	wrongDeltas  bool  // offset deltas are not 0, 1, 2…
	badTimestamp bool
	refused      int           // records with an error
	errs         []RecordError // the first of them
}

// inspect checks a client's batch in Kafka's order, and gives the batch to append: b itself, or one rebuilt into *scratch.
func (p *Partition) inspect(b protocol.Batch, cfg *config.Topic, now int64, scratch *[]byte) (protocol.Batch, error) {
	if len(b) >= protocol.BatchHeaderLen && b.Header().BaseOffset != 0 {
		return b, fmt.Errorf("base offset %d of a produced batch: %w", b.Header().BaseOffset, kerr.InvalidRecord)
	}
	if err := b.Check(int(cfg.MaxMessageBytes)); err != nil {
		return b, batchError(err)
	}
	in := inspection{topic: p.topic, index: p.index, cfg: cfg, now: now, header: b.Header(), maxTimestamp: -1}
	if err := in.checkHeader(); err != nil {
		return b, err
	}
	if err := b.Walk(recordLimit(cfg), in.record); err != nil {
		return b, batchError(err)
	}
	if in.refused > 0 {
		in.describe(b)
		return b, in.recordErrors()
	}
	b, err := in.convert(b, scratch)
	if err != nil {
		return b, err
	}
	if cfg.LogAppendTime {
		b.SetMaxTimestamp(true, now)
	} else {
		b.SetMaxTimestamp(false, in.maxTimestamp)
	}
	return b, nil
}

// recordLimit is max.decompressed.message.bytes, which is a limit of one record of a compressed batch.
func recordLimit(cfg *config.Topic) int64 {
	if cfg.MaxDecompressedMessageBytes <= 0 {
		return math.MaxInt32
	}
	return int64(cfg.MaxDecompressedMessageBytes)
}

func (in *inspection) checkHeader() error {
	h := &in.header
	switch {
	case h.Control():
		return fmt.Errorf("a client may not write control records: %w", kerr.InvalidRecord)
	case h.ProducerID >= 0 && h.BaseSequence < 0:
		return fmt.Errorf("sequence %d with producer id %d: %w", h.BaseSequence, h.ProducerID, kerr.InvalidRecord)
	case h.ProducerID < 0 && h.Transactional():
		// Kafka takes it, and then knows nothing of the transaction.
		return fmt.Errorf("a transactional batch without a producer id: %w", kerr.InvalidRecord)
	}
	return nil
}

// record checks one record: its key, then its timestamp. As Kafka it goes on after an error, to tell all of them.
func (in *inspection) record(r protocol.RecordInfo) error {
	if int(r.OffsetDelta) != r.Index {
		in.wrongDeltas = true
	}
	ts := in.header.Timestamp(r.TimestampDelta)
	switch {
	case in.cfg.CleanupCompact && r.NullKey:
		if in.refuse(r.Index) {
			in.explain("Compacted topic cannot accept message without key in topic partition %s", dirName(in.topic, in.index))
		}
	case !in.cfg.LogAppendTime && ts != -1:
		// The arithmetic wraps as Kafka's does: the smallest int64 is out of any range.
		age := in.now - ts
		if age > in.cfg.TimestampBeforeMaxMs || -age > in.cfg.TimestampAfterMaxMs {
			in.badTimestamp = true
			if in.refuse(r.Index) {
				in.explain("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
					ts, r.OffsetDelta, in.now-in.cfg.TimestampBeforeMaxMs, in.now+in.cfg.TimestampAfterMaxMs)
			}
		}
	case in.header.LogAppendTime():
		in.badTimestamp = true
		in.refuse(r.Index) // describe knows more of the record
	}
	in.maxTimestamp = max(in.maxTimestamp, ts)
	return nil
}

// refuse notes a record that is wrong, and tells whether it will be named in the answer.
func (in *inspection) refuse(index int) bool {
	in.refused++
	if in.refused > maxRecordErrors {
		return false
	}
	in.errs = append(in.errs, RecordError{BatchIndex: int32(index)})
	return true
}

// explain says what is wrong with the record that was refused last.
func (in *inspection) explain(format string, args ...any) {
	in.errs[len(in.errs)-1].Message = fmt.Sprintf(format, args...)
}

// describe fills in the messages that show the record itself, as Kafka prints it: of a compressed batch that it would store as it is
// it knows only the sizes, and tells a null apart.
func (in *inspection) describe(b protocol.Batch) {
	codec, _ := in.codec()
	partial := codec == in.header.Codec() && codec != protocol.CodecNone
	size := func(field []byte) int {
		if partial && field == nil {
			return -1
		}
		return len(field)
	}
	name := "DefaultRecord"
	if partial {
		name = "PartialDefaultRecord"
	}
	r := b.Records(recordLimit(in.cfg))
	defer r.Close()
	next := 0
	for index := int32(0); next < len(in.errs) && r.Next(); index++ {
		if index != in.errs[next].BatchIndex {
			continue
		}
		if e := &in.errs[next]; e.Message == "" {
			rec := r.Record()
			e.Message = fmt.Sprintf("Invalid timestamp type in message %s(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes)."+
				" Producer should not set timestamp type to LogAppendTime.",
				name, rec.OffsetDelta, in.header.Timestamp(rec.TimestampDelta), size(rec.Key), size(rec.Value))
		}
		next++
	}
}

func (in *inspection) recordErrors() error {
	if in.badTimestamp {
		return &RecordErrors{kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp", in.errs}
	}
	shown := make([]string, 0, shownErrors)
	for _, e := range in.errs[:min(len(in.errs), shownErrors)] {
		shown = append(shown, e.String())
	}
	return &RecordErrors{kerr.InvalidRecord, fmt.Sprintf("One or more records have been rejected due to %d record errors in total,"+
		" and only showing the first three errors at most: [%s]", in.refused, strings.Join(shown, ", ")), in.errs}
}

// convert gives the batch the topic's codec, and checks the size that it then has.
func (in *inspection) convert(b protocol.Batch, scratch *[]byte) (protocol.Batch, error) {
	codec, level := in.codec()
	switch {
	case codec != in.header.Codec():
		rebuilt, err := b.Rebuild((*scratch)[:0], codec, level, recordLimit(in.cfg), int(in.cfg.MaxMessageBytes))
		if err != nil {
			return b, batchError(err)
		}
		*scratch, b = rebuilt, rebuilt
	case in.wrongDeltas && codec != protocol.CodecNone:
		// Kafka means to rebuild the batch here, and breaks. An uncompressed batch it stores as it is.
		return b, fmt.Errorf("offset deltas are not consecutive: %w", kerr.InvalidRecord)
	}
	return b, checkSegmentBytes(b, in.cfg)
}

// codec is the one that the topic stores this batch in, and its level.
func (in *inspection) codec() (protocol.Codec, int) {
	codec, known := protocol.ParseCodec(in.cfg.CompressionType)
	if !known { // "producer"
		return in.header.Codec(), 0
	}
	switch codec {
	case protocol.CodecGzip:
		return codec, in.cfg.CompressionGzipLevel
	case protocol.CodecLZ4:
		return codec, in.cfg.CompressionLZ4Level
	case protocol.CodecZstd:
		return codec, in.cfg.CompressionZstdLevel
	}
	return codec, 0
}

// checkSegmentBytes refuses what no segment may hold.
func checkSegmentBytes(b protocol.Batch, cfg *config.Topic) error {
	if cfg.SegmentBytes > 0 && len(b) > int(cfg.SegmentBytes) {
		return fmt.Errorf("%d bytes, a segment has %d: %w", len(b), cfg.SegmentBytes, kerr.RecordListTooLarge)
	}
	return nil
}
