package cluster

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A record is one change of the metadata: a decision that has been taken. Records are values; what they hold is not changed once they are
// made, as images take it over.
type record interface {
	kind() recordKind
	// encode appends the payload of the newest version.
	encode(b []byte) []byte
}

// recordKind names a kind of record on disk. Numbers are never used twice.
type recordKind byte

const (
	kindCluster      recordKind = 1
	kindFeature      recordKind = 2
	kindBroker       recordKind = 3
	kindTopic        recordKind = 4
	kindPartitions   recordKind = 5
	kindRemoveTopic  recordKind = 6
	kindConfig       recordKind = 7
	kindProducerIDs  recordKind = 8
	kindQuota        recordKind = 9
	kindCredential   recordKind = 10
	kindRemoveBroker recordKind = 11
	kindDirectory    recordKind = 12
	kindLogDirs      recordKind = 13
)

// recordVersion is the payload version that every kind is written with today. A kind that changes gets a version of its own, and its decoder
// keeps the old one.
const recordVersion = 0

// entryVersion is the version of the frame around the records of one raft entry or snapshot.
const entryVersion = 1

type (
	// clusterRecord formats the metadata: it is the first of all.
	clusterRecord struct{ clusterID string }

	// featureRecord sets the finalized level of a feature; level 0 removes it.
	featureRecord struct {
		name  string
		level int16
	}

	// brokerRecord registers a broker. Its epoch is the index of the entry that holds the record if it says 0, as one that registers does;
	// snapshots name the epoch. A registration raises the leader epoch of all partitions that the broker leads.
	brokerRecord struct{ broker Broker }

	// removeBrokerRecord unregisters a broker: it leads nothing any more, and is in sync only where nobody else is.
	removeBrokerRecord struct{ id int32 }

	// topicRecord creates a topic with its partitions.
	topicRecord struct {
		name       string
		id         [16]byte
		partitions []Partition
	}

	// partitionsRecord adds partitions to a topic, numbered from first on.
	partitionsRecord struct {
		topicID    [16]byte
		first      int32
		partitions []Partition
	}

	// removeTopicRecord deletes a topic, and its configs with it.
	removeTopicRecord struct{ topicID [16]byte }

	// configRecord sets one dynamic config of one resource; a nil value removes it.
	configRecord struct {
		resource kmsg.ConfigResourceType
		name     string
		key      string
		value    *string
	}

	// producerIDsRecord hands a block of producer ids to a broker: what lies below next is taken.
	producerIDsRecord struct {
		brokerID    int32
		brokerEpoch int64
		next        int64
	}
)

func (clusterRecord) kind() recordKind      { return kindCluster }
func (featureRecord) kind() recordKind      { return kindFeature }
func (brokerRecord) kind() recordKind       { return kindBroker }
func (removeBrokerRecord) kind() recordKind { return kindRemoveBroker }
func (topicRecord) kind() recordKind        { return kindTopic }
func (partitionsRecord) kind() recordKind   { return kindPartitions }
func (removeTopicRecord) kind() recordKind  { return kindRemoveTopic }
func (configRecord) kind() recordKind       { return kindConfig }
func (producerIDsRecord) kind() recordKind  { return kindProducerIDs }

func (c clusterRecord) encode(b []byte) []byte { return appendString(b, c.clusterID) }

func (f featureRecord) encode(b []byte) []byte {
	return binary.AppendVarint(appendString(b, f.name), int64(f.level))
}

func (r brokerRecord) encode(b []byte) []byte {
	k := &r.broker
	b = binary.AppendVarint(b, int64(k.ID))
	b = binary.AppendVarint(b, k.Epoch)
	b = append(b, k.Incarnation[:]...)
	b = binary.AppendUvarint(b, uint64(len(k.Endpoints)))
	for _, e := range k.Endpoints {
		b = appendString(b, e.Name)
		b = appendString(b, e.Host)
		b = binary.AppendVarint(b, int64(e.Port))
		b = appendString(b, e.Protocol)
	}
	b = appendOptional(b, k.Rack)
	b = appendBool(b, k.Fenced)
	return appendIDs(b, k.LogDirs)
}

func (r removeBrokerRecord) encode(b []byte) []byte { return binary.AppendVarint(b, int64(r.id)) }

func (t topicRecord) encode(b []byte) []byte {
	b = appendString(b, t.name)
	b = append(b, t.id[:]...)
	return appendPartitions(b, t.partitions)
}

func (p partitionsRecord) encode(b []byte) []byte {
	b = append(b, p.topicID[:]...)
	b = binary.AppendVarint(b, int64(p.first))
	return appendPartitions(b, p.partitions)
}

func (t removeTopicRecord) encode(b []byte) []byte { return append(b, t.topicID[:]...) }

func (c configRecord) encode(b []byte) []byte {
	b = append(b, byte(c.resource))
	b = appendString(b, c.name)
	b = appendString(b, c.key)
	return appendOptional(b, c.value)
}

func (p producerIDsRecord) encode(b []byte) []byte {
	b = binary.AppendVarint(b, int64(p.brokerID))
	b = binary.AppendVarint(b, p.brokerEpoch)
	return binary.AppendVarint(b, p.next)
}

func appendPartitions(b []byte, ps []Partition) []byte {
	b = binary.AppendUvarint(b, uint64(len(ps)))
	for i := range ps {
		p := &ps[i]
		b = binary.AppendVarint(b, int64(p.Leader))
		b = binary.AppendVarint(b, int64(p.LeaderEpoch))
		b = binary.AppendVarint(b, int64(p.PartitionEpoch))
		b = appendInt32s(b, p.Replicas)
		b = appendInt32s(b, p.ISR)
		b = appendIDs(b, p.Directories)
	}
	return b
}

func (r *reader) partitions() []Partition {
	ps := make([]Partition, r.count(6))
	for i := range ps {
		ps[i] = Partition{
			Leader:         r.int32(),
			LeaderEpoch:    r.int32(),
			PartitionEpoch: r.int32(),
			Replicas:       r.int32s(),
			ISR:            r.int32s(),
			Directories:    r.ids(),
		}
	}
	return ps
}

func (r *reader) broker() Broker {
	k := Broker{ID: r.int32(), Epoch: r.varint(), Incarnation: r.id()}
	k.Endpoints = make([]Endpoint, r.count(4))
	for i := range k.Endpoints {
		k.Endpoints[i] = Endpoint{Name: r.string(), Host: r.string(), Port: r.int32(), Protocol: r.string()}
	}
	k.Rack, k.Fenced, k.LogDirs = r.optional(), r.bool(), r.ids()
	return k
}

// payload decodes the payload of one record, all of which is in r.
func (r *reader) payload(kind recordKind, version byte) record {
	if version > recordVersion {
		r.fail(fmt.Sprintf("record kind %d has version %d, known are those to %d: written by a newer broker", kind, version, recordVersion))
		return nil
	}
	switch kind {
	case kindCluster:
		return clusterRecord{r.string()}
	case kindFeature:
		return featureRecord{r.string(), r.int16()}
	case kindBroker:
		return brokerRecord{r.broker()}
	case kindTopic:
		return topicRecord{r.string(), r.id(), r.partitions()}
	case kindPartitions:
		return partitionsRecord{r.id(), r.int32(), r.partitions()}
	case kindRemoveTopic:
		return removeTopicRecord{r.id()}
	case kindConfig:
		return configRecord{kmsg.ConfigResourceType(int8(r.byte())), r.string(), r.string(), r.optional()}
	case kindProducerIDs:
		return producerIDsRecord{r.int32(), r.varint(), r.varint()}
	case kindQuota:
		return r.quota()
	case kindCredential:
		return r.credential()
	case kindRemoveBroker:
		return removeBrokerRecord{r.int32()}
	case kindDirectory:
		return directoryRecord{r.id(), r.int32(), r.int32(), r.id()}
	case kindLogDirs:
		return logDirsRecord{r.int32(), r.ids()}
	}
	r.fail(fmt.Sprintf("record kind %d is unknown: written by a newer broker", kind))
	return nil
}

// encodeEntry is the data of a raft entry: the records that were decided at once, and the term in which that was.
func encodeEntry(term uint64, records []record) []byte {
	b := make([]byte, 0, 64+32*len(records))
	b = append(b, entryVersion)
	b = binary.AppendUvarint(b, term)
	return appendRecords(b, records)
}

func appendRecords(b []byte, records []record) []byte {
	b = binary.AppendUvarint(b, uint64(len(records)))
	var payload []byte
	for _, rec := range records {
		payload = rec.encode(payload[:0])
		b = append(b, byte(rec.kind()), recordVersion)
		b = binary.AppendUvarint(b, uint64(len(payload)))
		b = append(b, payload...)
	}
	return b
}

// decodeEntry reverses encodeEntry.
func decodeEntry(data []byte) (term uint64, records []record, err error) {
	r := reader{src: data}
	if v := r.byte(); v != entryVersion && r.err == nil {
		r.fail(fmt.Sprintf("entry has version %d, known is %d", v, entryVersion))
	}
	term = r.uvarint()
	records = r.records()
	if len(r.src) > 0 {
		r.fail("bytes after the last record")
	}
	return term, records, r.err
}

func (r *reader) records() []record {
	records := make([]record, 0, r.count(3))
	for range cap(records) {
		kind, version := recordKind(r.byte()), r.byte()
		p := reader{src: r.bytes(r.uvarint()), err: r.err}
		rec := p.payload(kind, version)
		if len(p.src) > 0 {
			p.fail(fmt.Sprintf("bytes after record kind %d", kind))
		}
		if r.err = p.err; r.err != nil {
			return nil
		}
		records = append(records, rec)
	}
	return records
}

// encodeSnapshot is the whole image: version, index, and the records that make it.
func encodeSnapshot(im *Image) []byte {
	b := binary.AppendUvarint([]byte{entryVersion}, uint64(im.Index))
	return appendRecords(b, im.records())
}

// decodeSnapshot reverses encodeSnapshot.
func decodeSnapshot(data []byte) (*Image, error) {
	index, records, err := decodeEntry(data) // a term and an index look the same
	if err != nil {
		return nil, err
	}
	return emptyImage().replay(int64(index), records)
}
