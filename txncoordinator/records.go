package txncoordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// lastEpochTag is our own tagged field of the value: lastProducerEpoch. Kafka's are 0 to 3.
const lastEpochTag = 100

// errRecord is a record of __transaction_state that can't be understood.
var errRecord = errors.New("invalid transaction record")

// encodeKey gives the key of a transactional id.
func encodeKey(id string) []byte {
	k := kmsg.TxnMetadataKey{TransactionalID: id}
	return k.AppendTo(make([]byte, 0, 4+len(id)))
}

// decodeKey reads a key. It reports false for a key of another version, which is to be skipped.
func decodeKey(b []byte) (id string, ok bool, err error) {
	if len(b) < 2 {
		return "", false, fmt.Errorf("key of %d bytes: %w", len(b), errRecord)
	}
	if binary.BigEndian.Uint16(b) != 0 {
		return "", false, nil
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(b); err != nil {
		return "", false, fmt.Errorf("key: %w: %w", errRecord, err)
	}
	return k.TransactionalID, true, nil
}

// encodeValue gives the value of m, at transaction.version level.
func encodeValue(m *metadata, level int16) []byte {
	v := kmsg.NewTxnMetadataValue()
	v.Version = min(level, 1)
	v.ProducerID = m.producerID
	v.ProducerEpoch = m.epoch
	v.TimeoutMillis = m.timeoutMillis
	v.State = m.state
	if m.state != Empty {
		v.Topics = make([]kmsg.TxnMetadataValueTopic, len(m.partitions))
		for i, t := range m.partitions {
			v.Topics[i].Topic, v.Topics[i].Partitions = t.Name, t.Partitions
		}
	}
	v.LastUpdateTimestamp = m.updateMillis
	v.StartTimestamp = m.startMillis
	v.PreviousProducerID = m.previousProducerID
	v.NextProducerID = m.nextProducerID
	v.ClientTransactionVersion = m.clientVersion
	if v.Version > 0 && m.lastEpoch != noEpoch {
		v.UnknownTags.Set(lastEpochTag, binary.BigEndian.AppendUint16(nil, uint16(m.lastEpoch)))
	}
	return v.AppendTo(make([]byte, 0, 128))
}

// decodeValue reads a value of version 0 or 1.
func decodeValue(b []byte) (metadata, error) {
	if len(b) < 2 {
		return metadata{}, fmt.Errorf("value of %d bytes: %w", len(b), errRecord)
	}
	if version := int16(binary.BigEndian.Uint16(b)); version < 0 || version > 1 {
		return metadata{}, fmt.Errorf("value version %d: %w", version, errRecord)
	}
	var v kmsg.TxnMetadataValue
	if err := v.ReadFrom(b); err != nil {
		return metadata{}, fmt.Errorf("value: %w: %w", errRecord, err)
	}
	if v.State < Empty || v.State > CompleteAbort {
		return metadata{}, fmt.Errorf("state %d: %w", int8(v.State), errRecord)
	}
	m := metadata{
		producerID:         v.ProducerID,
		previousProducerID: v.PreviousProducerID,
		nextProducerID:     v.NextProducerID,
		epoch:              v.ProducerEpoch,
		lastEpoch:          noEpoch,
		timeoutMillis:      v.TimeoutMillis,
		state:              v.State,
		partitions:         decodePartitions(v.Topics),
		updateMillis:       v.LastUpdateTimestamp,
		startMillis:        v.StartTimestamp,
		clientVersion:      v.ClientTransactionVersion,
	}
	var err error
	if v.UnknownTags.Len() > 0 {
		v.UnknownTags.Each(func(tag uint32, b []byte) {
			switch {
			case tag != lastEpochTag:
			case len(b) != 2:
				err = fmt.Errorf("tag %d of %d bytes: %w", tag, len(b), errRecord)
			default:
				m.lastEpoch = int16(binary.BigEndian.Uint16(b))
			}
		})
	}
	return m, err
}

// decodePartitions makes a set of what a record lists: Kafka writes it in the order of its hash tables.
func decodePartitions(topics []kmsg.TxnMetadataValueTopic) Partitions {
	if len(topics) == 0 {
		return nil
	}
	p := make(Partitions, 0, len(topics))
	for _, t := range topics {
		if len(t.Partitions) > 0 {
			slices.Sort(t.Partitions)
			p = append(p, Topic{t.Topic, slices.Compact(t.Partitions)})
		}
	}
	slices.SortFunc(p, func(a, b Topic) int { return byName(a, b.Name) })
	merged := p[:0]
	for _, t := range p {
		if n := len(merged); n > 0 && merged[n-1].Name == t.Name {
			merged[n-1].Partitions = append(merged[n-1].Partitions, t.Partitions...)
			slices.Sort(merged[n-1].Partitions)
			merged[n-1].Partitions = slices.Compact(merged[n-1].Partitions)
			continue
		}
		merged = append(merged, t)
	}
	return merged
}
