package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// restartEpochs is how much a leader epoch grows when the leader has been restarted: as in Kafka, where the partition first loses its leader
// and then gets it back.
const restartEpochs = 2

// edit makes the next image from one. It is owned by one goroutine and used once. Copying is by layers: the trees share all that the edit does
// not touch, so one edit of n topics costs about n, whatever the image holds.
type edit struct {
	im          Image // trees and brokers of it are shared with other images
	topics      *iradix.Txn
	ids         *iradix.Txn
	similar     *iradix.Txn
	configs     *iradix.Txn
	quotas      *iradix.Txn
	credentials *iradix.Txn
	change      change
}

// edit starts the image that is as of the given index.
func (im *Image) edit(index int64) *edit {
	e := &edit{
		im: *im, topics: im.topics.Txn(), ids: im.ids.Txn(), similar: im.similar.Txn(), configs: im.configs.Txn(),
		quotas: im.quotas.Txn(), credentials: im.credentials.Txn(),
	}
	e.im.Index = index
	e.change.from = im.Index
	return e
}

// image ends the edit.
func (e *edit) image() *Image {
	e.im.topics, e.im.ids = e.topics.Commit(), e.ids.Commit()
	e.im.similar, e.im.configs = e.similar.Commit(), e.configs.Commit()
	e.im.quotas, e.im.credentials = e.quotas.Commit(), e.credentials.Commit()
	old := e.im.recent
	e.im.recent = append(append(make([]change, 0, recentChanges), old[max(0, len(old)-recentChanges+1):]...), e.change)
	im := e.im
	return &im
}

// replay is what records mean. A record that cannot follow the image is an error: the log has then been written by something else than
// the decisions of this package, and the edit must be dropped.
func (e *edit) replay(rec record) error {
	switch rec := rec.(type) {
	case clusterRecord:
		if e.im.ClusterID != "" {
			return fmt.Errorf("%w: cluster %s is formatted again as %s", errCorrupt, e.im.ClusterID, rec.clusterID)
		}
		e.im.ClusterID = rec.clusterID
	case featureRecord:
		e.replayFeature(rec)
	case brokerRecord:
		e.replayBroker(rec)
	case removeBrokerRecord:
		return e.replayRemoveBroker(rec)
	case directoryRecord:
		return e.replayDirectory(rec)
	case logDirsRecord:
		return e.replayLogDirs(rec)
	case topicRecord:
		return e.replayTopic(rec)
	case partitionsRecord:
		return e.replayPartitions(rec)
	case removeTopicRecord:
		return e.replayRemoveTopic(rec)
	case configRecord:
		e.replayConfig(rec)
	case quotaRecord:
		e.replayQuota(rec)
	case credentialRecord:
		return e.replayCredential(rec)
	case producerIDsRecord:
		if rec.next <= e.im.nextProducerID {
			return fmt.Errorf("%w: producer ids below %d after those below %d", errCorrupt, rec.next, e.im.nextProducerID)
		}
		e.im.nextProducerID = rec.next
	}
	return nil
}

func (e *edit) replayFeature(rec featureRecord) {
	e.im.features = maps.Clone(e.im.features)
	if rec.level == 0 {
		delete(e.im.features, rec.name)
		return
	}
	e.im.features[rec.name] = rec.level
}

func (e *edit) replayBroker(rec brokerRecord) {
	b := rec.broker
	if b.Epoch == 0 {
		b.Epoch = e.im.Index
	}
	brokers := slices.Clone(e.im.brokers)
	i, known := slices.BinarySearchFunc(brokers, b.ID, func(b *Broker, id int32) int { return int(b.ID) - int(id) })
	if known {
		brokers[i] = &b
	} else {
		brokers = slices.Insert(brokers, i, &b)
	}
	e.im.brokers = brokers
	if !known {
		return
	}
	// A new leader epoch for each partition that the broker leads and can go on leading.
	e.changePartitions(b.concerns, func(p *Partition) {
		if p.Leader == b.ID && b.usable(p.Directory(b.ID)) {
			p.LeaderEpoch += restartEpochs
			p.PartitionEpoch += restartEpochs
			return
		}
		p.settle(&b)
	})
}

func (e *edit) replayRemoveBroker(rec removeBrokerRecord) error {
	i, known := slices.BinarySearchFunc(e.im.brokers, rec.id, func(b *Broker, id int32) int { return int(b.ID) - int(id) })
	if !known {
		return fmt.Errorf("%w: unknown broker %d is removed", errCorrupt, rec.id)
	}
	e.im.brokers = slices.Delete(slices.Clone(e.im.brokers), i, i+1)
	e.changePartitions(func(p *Partition) bool { return p.Leader == rec.id || slices.Contains(p.ISR, rec.id) && len(p.ISR) > 1 }, func(p *Partition) {
		if len(p.ISR) > 1 {
			p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), func(id int32) bool { return id == rec.id })
		}
		if p.Leader == rec.id {
			p.Leader = -1
			p.LeaderEpoch++
		}
		p.PartitionEpoch++
	})
	return nil
}

// changePartitions changes all partitions that are concerned.
func (e *edit) changePartitions(concerned func(*Partition) bool, change func(*Partition)) {
	var topics []*Topic
	it := e.topics.Root().Iterator()
	for _, v, ok := it.Next(); ok; _, v, ok = it.Next() {
		t := v.(*Topic)
		if slices.ContainsFunc(t.Partitions, func(p Partition) bool { return concerned(&p) }) {
			topics = append(topics, t)
		}
	}
	for _, t := range topics {
		next := *t
		next.Partitions = slices.Clone(t.Partitions)
		for i := range next.Partitions {
			if p := &next.Partitions[i]; concerned(p) {
				change(p)
			}
		}
		e.put(&next)
	}
}

func (e *edit) put(t *Topic) {
	e.change.topics = append(e.change.topics, t.Name)
	e.topics.Insert([]byte(t.Name), t)
	e.ids.Insert(t.ID[:], t)
}

func (e *edit) replayTopic(rec topicRecord) error {
	if _, ok := e.topics.Get([]byte(rec.name)); ok {
		return fmt.Errorf("%w: topic %s is created again", errCorrupt, rec.name)
	}
	if _, ok := e.ids.Get(rec.id[:]); ok {
		return fmt.Errorf("%w: topic id %x of %s is taken", errCorrupt, rec.id, rec.name)
	}
	e.put(&Topic{Name: rec.name, ID: rec.id, Internal: IsInternal(rec.name), Partitions: rec.partitions})
	if key := similarKey(rec.name); key != nil {
		e.similar.Insert(key, rec.name)
	}
	e.im.partitions += len(rec.partitions)
	return nil
}

func (e *edit) replayPartitions(rec partitionsRecord) error {
	v, ok := e.ids.Get(rec.topicID[:])
	if !ok {
		return fmt.Errorf("%w: partitions for unknown topic id %x", errCorrupt, rec.topicID)
	}
	t := *v.(*Topic)
	if int(rec.first) != len(t.Partitions) {
		return fmt.Errorf("%w: partitions of %s from %d on, it has %d", errCorrupt, t.Name, rec.first, len(t.Partitions))
	}
	t.Partitions = slices.Concat(t.Partitions, rec.partitions)
	e.put(&t)
	e.im.partitions += len(rec.partitions)
	return nil
}

func (e *edit) replayRemoveTopic(rec removeTopicRecord) error {
	v, ok := e.ids.Delete(rec.topicID[:])
	if !ok {
		return fmt.Errorf("%w: unknown topic id %x is removed", errCorrupt, rec.topicID)
	}
	t := v.(*Topic)
	e.change.topics = append(e.change.topics, t.Name)
	e.topics.Delete([]byte(t.Name))
	if key := similarKey(t.Name); key != nil {
		e.similar.Delete(key)
	}
	e.configs.Delete(configKey(kmsg.ConfigResourceTypeTopic, t.Name))
	e.im.partitions -= len(t.Partitions)
	return nil
}

func (e *edit) replayConfig(rec configRecord) {
	e.change.configs = append(e.change.configs, Resource{rec.resource, rec.name})
	key := configKey(rec.resource, rec.name)
	var values map[string]string
	if v, ok := e.configs.Get(key); ok {
		values = maps.Clone(v.(map[string]string))
	} else {
		values = map[string]string{}
	}
	if rec.value == nil {
		delete(values, rec.key)
	} else {
		values[rec.key] = *rec.value
	}
	if len(values) == 0 {
		e.configs.Delete(key)
		return
	}
	e.configs.Insert(key, values)
}

// similarKey files a topic under what its name is where '.' and '_' are the same, as they are in the names of metrics: names of one prefix up
// to the 0 collide. It is nil for a name with neither, which collides with no other.
func similarKey(name string) []byte {
	if !strings.ContainsAny(name, "._") {
		return nil
	}
	return append(similarPrefix(name), name...)
}

func similarPrefix(name string) []byte {
	return append([]byte(strings.ReplaceAll(name, ".", "_")), 0)
}

// records are the shortest history that makes the image, for snapshots. Brokers come before topics, as a registration raises epochs.
func (im *Image) records() []record {
	var rs []record
	if im.ClusterID != "" {
		rs = append(rs, clusterRecord{im.ClusterID})
	}
	for _, name := range slices.Sorted(maps.Keys(im.features)) {
		rs = append(rs, featureRecord{name, im.features[name]})
	}
	for _, b := range im.brokers {
		rs = append(rs, brokerRecord{*b})
	}
	for t := range im.Topics() {
		rs = append(rs, topicRecord{t.Name, t.ID, t.Partitions})
	}
	it := im.configs.Root().Iterator()
	for k, v, ok := it.Next(); ok; k, v, ok = it.Next() {
		values := v.(map[string]string)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			value := values[key]
			rs = append(rs, configRecord{kmsg.ConfigResourceType(int8(k[0])), string(k[1:]), key, &value})
		}
	}
	for q := range im.ClientQuotas() {
		for _, key := range slices.Sorted(maps.Keys(q.Limits)) {
			value := q.Limits[key]
			rs = append(rs, quotaRecord{q.Entity, key, &value})
		}
	}
	for u := range im.ScramUsers() {
		for _, mechanism := range slices.Sorted(maps.Keys(u.Credentials)) {
			credential := u.Credentials[mechanism]
			rs = append(rs, credentialRecord{u.Name, mechanism, &credential})
		}
	}
	if im.nextProducerID > 0 {
		rs = append(rs, producerIDsRecord{-1, -1, im.nextProducerID})
	}
	return rs
}
