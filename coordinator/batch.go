package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/controlmarkers"
	"oncelog/protocol"
)

// maxRecordBytes bounds one record that a load takes: far above what any internal topic is configured to hold.
const maxRecordBytes = 256 << 20

// encode gives the record batch as it goes to disk, with base sequence 0 (-1 for a marker) and no producer if it isn't
// transactional, as Kafka's coordinators write theirs.
func (b *Batch) encode(codec protocol.Codec, now time.Time) (protocol.Batch, error) {
	if b.Control {
		return controlmarkers.Encode(b.Marker, b.ProducerID, b.ProducerEpoch, now.UnixMilli()), nil
	}
	spec := protocol.BatchSpec{
		Codec:         codec,
		LeaderEpoch:   -1,
		BaseTimestamp: now.UnixMilli(),
		ProducerID:    -1,
		ProducerEpoch: -1,
	}
	if b.Transactional {
		spec.Transactional, spec.ProducerID, spec.ProducerEpoch = true, b.ProducerID, b.ProducerEpoch
	}
	records := make([]protocol.Record, len(b.Records))
	for i, r := range b.Records {
		records[i] = protocol.Record{Key: r.Key, Value: r.Value}
	}
	return protocol.AppendBatch(nil, spec, records)
}

// replay folds the batch, of which last is the last offset, into m.
func (b *Batch) replay(m Machine, last int64, now time.Time) error {
	r := Record{Timestamp: now.UnixMilli(), ProducerID: -1, ProducerEpoch: -1, Transactional: b.Transactional}
	if b.Transactional || b.Control {
		r.ProducerID, r.ProducerEpoch = b.ProducerID, b.ProducerEpoch
	}
	if b.Control {
		r.IsMarker, r.Marker = true, b.Marker
		return m.Replay(last, r)
	}
	first := last - int64(len(b.Records)) + 1
	for i := range b.Records {
		r.Key, r.Value = b.Records[i].Key, b.Records[i].Value
		if err := m.Replay(first+int64(i), r); err != nil {
			return err
		}
	}
	return nil
}

// replayStored folds a batch of the log into m.
func replayStored(m Machine, b protocol.Batch) error {
	h := b.Header()
	r := Record{ProducerID: -1, ProducerEpoch: -1, Transactional: h.Transactional() && !h.Control()}
	if h.Transactional() || h.Control() {
		r.ProducerID, r.ProducerEpoch = h.ProducerID, h.ProducerEpoch
	}
	records := b.Records(maxRecordBytes)
	defer records.Close()
	for records.Next() {
		rec := records.Record()
		r.Timestamp = h.Timestamp(rec.TimestampDelta)
		r.Key, r.Value = rec.Key, rec.Value
		if h.Control() {
			marker, ok, err := controlmarkers.DecodeRecord(rec.Key, rec.Value)
			if err != nil {
				return fmt.Errorf("offset %d: %w", h.BaseOffset+int64(rec.OffsetDelta), err)
			}
			if !ok {
				continue // not a transaction's end
			}
			r.Key, r.Value, r.IsMarker, r.Marker = nil, nil, true, marker
		}
		if err := m.Replay(h.BaseOffset+int64(rec.OffsetDelta), r); err != nil {
			return fmt.Errorf("offset %d: %w", h.BaseOffset+int64(rec.OffsetDelta), err)
		}
	}
	return records.Err()
}

// appendError is what a caller is told when a coordinator's write failed, as Kafka translates it; the cause stays wrapped in it.
func appendError(err error) error {
	for _, t := range appendErrors {
		for _, cause := range t.causes {
			if errors.Is(err, cause) {
				return fmt.Errorf("%w: %w", t.answer, err)
			}
		}
	}
	return err
}

var appendErrors = []struct {
	answer *kerr.Error
	causes []*kerr.Error
}{
	{kerr.CoordinatorNotAvailable, []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut}},
	{kerr.NotCoordinator, []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.KafkaStorageError}},
	{kerr.UnknownServerError, []*kerr.Error{kerr.MessageTooLarge, kerr.RecordListTooLarge}},
}
