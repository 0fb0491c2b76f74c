package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"oncelog/protocol"
)

// What a record of a coordinator can be that isn't known; Kafka's tool says so in place of the record.
var (
	errUnknownType    = errors.New("unknown record type")
	errUnknownVersion = errors.New("unknown record version")
)

// kafkaText is an error in Kafka's own words.
type kafkaText string

func (e kafkaText) Error() string { return string(e) }

// coordinatorRecord is a record of a coordinator, read.
type coordinatorRecord struct {
	apiKey  int16
	key     object
	version int16  // of the value
	value   object // nil for a tombstone
}

// decodeCoordinatorRecord reads a record of a family of messages: group, txn or share.
func decodeCoordinatorRecord(family string, key, value []byte) (coordinatorRecord, error) {
	var r coordinatorRecord
	if len(key) < 2 {
		return r, kafkaText("Could not read version from key's buffer.")
	}
	r.apiKey = int16(binary.BigEndian.Uint16(key))
	k, v := messageOf(family+"-key", r.apiKey), messageOf(family+"-value", r.apiKey)
	if k == nil || v == nil {
		return r, fmt.Errorf("%w %d", errUnknownType, r.apiKey)
	}
	var err error
	if r.key, err = k.decode(key[2:], 0); err != nil {
		return r, inBuffer(err, "key", r.apiKey)
	}
	if value == nil {
		return r, nil
	}
	if len(value) < 2 {
		return r, kafkaText("Could not read version from value's buffer.")
	}
	if r.version = int16(binary.BigEndian.Uint16(value)); r.version < v.min || r.version > v.max {
		return r, kafkaText(fmt.Sprintf("Found an unknown record version %d for %d type", r.version, r.apiKey))
	}
	if r.value, err = v.decode(value[2:], r.version); err != nil {
		return r, inBuffer(err, "value", r.version)
	}
	return r, nil
}

// inBuffer is how Kafka tells of a message that can't be read.
func inBuffer(err error, buffer string, version int16) error {
	reason := err.Error()
	if f, ok := errors.AsType[*fault](err); ok {
		reason = f.kafkas
	}
	return kafkaText(fmt.Sprintf("Could not read record with version %d from %s's buffer due to: %s.", version, buffer, reason))
}

// The families of messages, by decoder.
var families = map[Decoder]string{DecodeOffsets: "group", DecodeTransactions: "txn", DecodeShareGroups: "share"}

// contents gives key and value of a record as they are shown; nil for one that isn't.
func (d *dumper) contents(r *protocol.Record, offset int64) (key, value *string, err error) {
	switch d.o.Decoder {
	case DecodeText:
		if r.Key != nil {
			key = text(javaText(r.Key))
		}
		if r.Value != nil {
			value = text(javaText(r.Value))
		}
		return key, value, nil
	case DecodeMetadata:
		return nil, text(metadataText(r, offset)), nil
	}
	if r.Key == nil {
		return nil, nil, kafkaText(fmt.Sprintf("Failed to decode message at offset %d using the specified decoder (message had a missing key)", offset))
	}
	c, err := decodeCoordinatorRecord(families[d.o.Decoder], r.Key, r.Value)
	switch {
	case errors.Is(err, errUnknownType):
		return text(fmt.Sprintf("Unknown record type %d at offset %d, skipping.", c.apiKey, offset)), nil, nil
	case err != nil:
		return text(fmt.Sprintf("Error at offset %d, skipping. %v", offset, err)), nil, nil
	}
	quoted := func(n int16) string { return fmt.Sprint(n) }
	key = text(string(appendJSON(nil, object{{"type", quoted(c.apiKey)}, {"data", c.key}})))
	if c.value == nil {
		return key, text("<DELETE>"), nil
	}
	c.explain(d.o.Decoder)
	return key, text(string(appendJSON(nil, object{{"version", quoted(c.version)}, {"data", c.value}}))), nil
}

func text(s string) *string { return &s }

// explain replaces what Kafka's tool shows otherwise than as a number or bytes.
func (c *coordinatorRecord) explain(d Decoder) {
	switch {
	case d == DecodeTransactions:
		status := c.value.int("transactionStatus")
		name := fmt.Sprint(status)
		if status >= 0 && int(status) < len(transactionStates) {
			name = transactionStates[status]
		}
		c.value.set("transactionStatus", name)
	case d == DecodeOffsets && c.apiKey == groupMetadataKey && c.value.text("protocolType") == "consumer":
		members, _ := c.value.get("members").([]any)
		for _, m := range members {
			explainClientBytes(m.(object), "subscription", "ConsumerProtocolSubscription")
			explainClientBytes(m.(object), "assignment", "ConsumerProtocolAssignment")
		}
	}
}

const groupMetadataKey = 2

// transactionStates are the names of the states of a transaction, by number.
var transactionStates = []string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

// explainClientBytes shows what the bytes of a client mean, if they are what they should be.
func explainClientBytes(o object, field, name string) {
	data, _ := o.get(field).([]byte)
	if len(data) < 2 {
		return
	}
	m, version := messageNamed(name), int16(binary.BigEndian.Uint16(data))
	if version < m.min || version > m.max {
		return
	}
	if explained, err := m.decode(data[2:], version); err == nil {
		o.set(field, explained)
	}
}

// metadataText is a record of Kafka's metadata log as JSON.
func metadataText(r *protocol.Record, offset int64) string {
	m, version, o, err := decodeMetadataRecord(r.Value)
	if err != nil {
		return fmt.Sprintf("Error at %d, skipping. %v", offset, err)
	}
	return string(appendJSON(nil, object{{"type", recordTypeName(m.name)}, {"version", int64(version)}, {"data", o}}))
}

// decodeMetadataRecord reads a record of Kafka's metadata log: frame version, type, version, message.
func decodeMetadataRecord(value []byte) (*message, int16, object, error) {
	r := wire{src: value}
	frame, kind, version := r.uvarint(), r.uvarint(), r.uvarint()
	if r.err != nil {
		return nil, 0, nil, r.err
	}
	if frame != 1 {
		return nil, 0, nil, fmt.Errorf("frame version %d: %w", frame, errMessage)
	}
	m := messageOf("metadata", int16(min(kind, never)))
	if m == nil {
		return nil, 0, nil, fmt.Errorf("%w %d", errUnknownType, kind)
	}
	if version > int(m.max) {
		return nil, 0, nil, fmt.Errorf("%w %d of type %d", errUnknownVersion, version, kind)
	}
	o, err := m.decode(r.src, int16(version))
	return m, int16(version), o, err
}

// recordTypeName is FOO_BAR_RECORD for FooBarRecord.
func recordTypeName(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToUpper(b.String())
}
