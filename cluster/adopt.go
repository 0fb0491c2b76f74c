package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Adoption is topics that come from elsewhere: their data lies in the log directories of this node already.
type Adoption struct {
	ClusterID      string // of a cluster that has none yet
	Topics         []AdoptedTopic
	NextProducerID int64 // all ids below it are in use in the data
}

// AdoptedTopic is one of them. This node gets all its partitions.
type AdoptedTopic struct {
	Name       string
	ID         [16]byte
	Configs    map[string]string
	Partitions []AdoptedPartition
}

// AdoptedPartition is a partition of one.
type AdoptedPartition struct {
	LeaderEpoch int32    // that it begins with here, above all that its data has
	Directory   [16]byte // that its data lies in
}

// Adopt makes topics known with the ids that they have, all or none.
func (c *Controller) Adopt(ctx context.Context, a Adoption) error {
	var refusal error
	err := c.do(ctx, func(d *decider) (records []record) {
		records, refusal = d.adopt(a)
		return records
	})
	if err == nil {
		err = refusal
	}
	return err
}

func (d *decider) adopt(a Adoption) ([]record, error) {
	records := d.format(a.ClusterID)
	for i := range a.Topics {
		more, err := d.adoptTopic(&a.Topics[i])
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", a.Topics[i].Name, err)
		}
		records = append(records, more...)
	}
	if a.NextProducerID > d.im.nextProducerID {
		records = append(records, producerIDsRecord{brokerID: -1, brokerEpoch: -1, next: a.NextProducerID})
	}
	return records, nil
}

func (d *decider) adoptTopic(t *AdoptedTopic) ([]record, error) {
	if err := CheckTopicName(t.Name); err != nil {
		return nil, err
	}
	if other := d.im.Topic(t.Name); other != nil {
		return nil, reject(kerr.TopicAlreadyExists, "Topic '%s' already exists.", t.Name)
	}
	if other := d.im.TopicByID(t.ID); other != nil {
		return nil, reject(kerr.TopicAlreadyExists, "its id is that of topic '%s'.", other.Name)
	}
	if other := d.im.collision(t.Name); other != "" {
		return nil, reject(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", t.Name, other)
	}
	keys := slices.Sorted(maps.Keys(t.Configs))
	if err := checkTopicValues(keys, t.Configs); err != nil {
		return nil, err
	}
	partitions := make([]Partition, len(t.Partitions))
	for i, p := range t.Partitions {
		partitions[i] = Partition{
			Leader: d.nodeID, LeaderEpoch: p.LeaderEpoch, Replicas: []int32{d.nodeID}, ISR: []int32{d.nodeID}, Directories: [][16]byte{p.Directory},
		}
	}
	records := []record{topicRecord{t.Name, t.ID, partitions}}
	for _, key := range keys {
		value := t.Configs[key]
		records = append(records, configRecord{kmsg.ConfigResourceTypeTopic, t.Name, key, &value})
	}
	return records, nil
}
