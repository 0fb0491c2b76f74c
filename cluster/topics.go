package cluster

import (
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxBatch is the most records that one CreateTopics or CreatePartitions may cause. The limit is Kafka's, where each topic, each partition and
// each config is a record.
const maxBatch = 10000

// createTopics decides on a CreateTopics request whose names are all different.
func (d *decider) createTopics(req *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, []record) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	counts := map[string]int{}
	for i := range req.Topics {
		counts[req.Topics[i].Topic]++
	}
	if err := d.checkTotal(req, counts); err != nil && req.TimeoutMillis > 0 {
		return failCreateTopics(req, err), nil
	}
	var all []record
	var twice, forbidden []kmsg.CreateTopicsResponseTopic // answered behind all others, as in Kafka
	size := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		switch n := counts[t.Topic]; {
		case n == 0: // the second of a name that has been answered
			continue
		case n > 1:
			counts[t.Topic] = 0
			twice = append(twice, createFailed(t.Topic, reject(kerr.InvalidRequest, "Duplicate topic name.")))
			continue
		case t.Topic == clusterMetadata:
			forbidden = append(forbidden, createFailed(t.Topic,
				reject(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", clusterMetadata)))
			continue
		case req.TimeoutMillis <= 0:
			return failCreateTopics(req, kerr.RequestTimedOut), nil
		}
		answer := kmsg.NewCreateTopicsResponseTopic()
		records, err := d.createTopic(t, &answer, req.Version)
		if err != nil {
			answer = createFailed(t.Topic, err)
		} else {
			size += len(records) + len(records[0].(topicRecord).partitions)
		}
		if size > maxBatch {
			return failCreateTopics(req, reject(kerr.PolicyViolation, "Unable to perform excessively large batch operation.")), nil
		}
		resp.Topics, all = append(resp.Topics, answer), append(all, records...)
	}
	resp.Topics = slices.Concat(resp.Topics, twice, forbidden)
	if req.ValidateOnly {
		return resp, nil
	}
	return resp, all
}

// checkTotal bounds the partitions of the topics of a request that it names once, before anything is made of them.
func (d *decider) checkTotal(req *kmsg.CreateTopicsRequest, counts map[string]int) error {
	total := int64(0)
	for i := range req.Topics {
		t := &req.Topics[i]
		switch n := len(t.ReplicaAssignment); {
		case counts[t.Topic] > 1:
		case n > 0:
			total += int64(n)
		case t.NumPartitions == -1:
			total += int64(d.numPartitions())
		case t.NumPartitions > 0:
			total += int64(t.NumPartitions)
		}
	}
	if total > maxBatch {
		return reject(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	return nil
}

func (d *decider) createTopic(t *kmsg.CreateTopicsRequestTopic, answer *kmsg.CreateTopicsResponseTopic, version int16) ([]record, error) {
	if err := CheckTopicName(t.Topic); err != nil {
		return nil, err
	}
	if d.im.Topic(t.Topic) != nil {
		return nil, reject(kerr.TopicAlreadyExists, "Topic '%s' already exists.", t.Topic)
	}
	if other := d.im.collision(t.Topic); other != "" {
		return nil, reject(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", t.Topic, other)
	}
	overrides, err := topicOverrides(t.Configs)
	if err != nil {
		return nil, err
	}
	id := d.newID()
	partitions, err := d.place(t, id)
	if err != nil {
		return nil, err
	}
	records := []record{topicRecord{t.Topic, id, partitions}}
	for _, key := range overrides.order {
		value := overrides.values[key]
		records = append(records, configRecord{kmsg.ConfigResourceTypeTopic, t.Topic, key, &value})
	}
	answer.Topic, answer.TopicID = t.Topic, id
	if version >= 5 {
		answer.NumPartitions, answer.ReplicationFactor = int32(len(partitions)), int16(len(partitions[0].Replicas))
		answer.Configs = d.describeTopic(overrides.values)
	}
	return records, nil
}

// collision is an existing topic whose metrics would get the same names, "" if there is none.
func (im *Image) collision(name string) string {
	if similarKey(name) == nil {
		return ""
	}
	it := im.similar.Root().Iterator()
	it.SeekPrefix(similarPrefix(name))
	if _, v, ok := it.Next(); ok {
		return v.(string)
	}
	return ""
}

// place makes the partitions of a new topic, as assigned by hand or by itself.
func (d *decider) place(t *kmsg.CreateTopicsRequestTopic, id [16]byte) ([]Partition, error) {
	if len(t.ReplicaAssignment) > 0 {
		return d.placeAssigned(t)
	}
	n, factor := t.NumPartitions, t.ReplicationFactor
	if factor < -1 || factor == 0 {
		return nil, reject(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if n < -1 || n == 0 {
		return nil, reject(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	if n == -1 {
		n = d.numPartitions()
	}
	if factor == -1 {
		factor = d.replicationFactor()
	}
	return d.placeNew(id, 0, int(n), int(factor))
}

func (d *decider) placeAssigned(t *kmsg.CreateTopicsRequestTopic) ([]Partition, error) {
	if t.ReplicationFactor != -1 {
		return nil, reject(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.NumPartitions != -1 {
		return nil, reject(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byIndex := make(map[int32]Partition, len(t.ReplicaAssignment))
	factor := 0
	for i := range t.ReplicaAssignment {
		a := &t.ReplicaAssignment[i]
		if _, ok := byIndex[a.Partition]; ok {
			return nil, reject(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := d.checkReplicas(a.Replicas, factor); err != nil {
			return nil, err
		}
		factor = len(a.Replicas)
		p, ok := d.partition(a.Replicas)
		if !ok {
			return nil, reject(kerr.InvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		byIndex[a.Partition] = p
	}
	partitions := make([]Partition, len(byIndex))
	for i := range partitions {
		p, ok := byIndex[int32(i)]
		if !ok {
			return nil, reject(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		partitions[i] = p
	}
	return partitions, nil
}

// checkReplicas checks replicas that were named by hand. A factor of 0 is not known yet.
func (d *decider) checkReplicas(replicas []int32, factor int) error {
	if len(replicas) == 0 {
		return reject(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if d.im.Broker(id) == nil {
			return reject(kerr.InvalidReplicaAssignment,
				"The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && sorted[i-1] == id {
			return reject(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor > 0 && factor != len(replicas) {
		return reject(kerr.InvalidReplicaAssignment,
			"The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).",
			len(replicas), factor)
	}
	return nil
}

// partition is a new partition on the given brokers; ok is false if none of them is alive.
func (d *decider) partition(replicas []int32) (p Partition, ok bool) {
	p.Replicas = slices.Clone(replicas)
	p.Directories = make([][16]byte, len(replicas))
	for i, id := range replicas {
		b := d.im.Broker(id)
		p.Directories[i] = d.directoryFor(b)
		if !b.Fenced {
			p.ISR = append(p.ISR, id)
		}
	}
	if len(p.ISR) == 0 {
		return p, false
	}
	p.Leader = p.ISR[0]
	return p, true
}

// placeNew spreads n partitions, numbered from first on, over the brokers: each next one starts a broker further, and a topic starts where its
// id says. Living brokers lead.
func (d *decider) placeNew(id [16]byte, first, n, factor int) ([]Partition, error) {
	alive := make([]int32, 0, len(d.im.brokers))
	fenced := make([]int32, 0, len(d.im.brokers))
	for _, b := range d.im.brokers {
		if b.Fenced {
			fenced = append(fenced, b.ID)
		} else {
			alive = append(alive, b.ID)
		}
	}
	if len(alive) == 0 {
		return nil, reject(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): All brokers are currently fenced.", factor)
	}
	if factor > len(d.im.brokers) {
		return nil, reject(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.",
			factor, factor, len(d.im.brokers))
	}
	start := int(binary.BigEndian.Uint32(id[:]) & 0xffff)
	partitions := make([]Partition, n)
	replicas := make([]int32, 0, factor)
	for i := range partitions {
		replicas = replicas[:0]
		for j := range min(factor, len(alive)) {
			replicas = append(replicas, alive[(start+first+i+j)%len(alive)])
		}
		for j := range factor - len(replicas) {
			replicas = append(replicas, fenced[(start+first+i+j)%len(fenced)])
		}
		partitions[i], _ = d.partition(replicas)
	}
	return partitions, nil
}

// deletion is a DeleteTopics request being decided: how often it names each topic, and which have been answered.
type deletion struct {
	names, answeredNames map[string]int
	ids, answeredIDs     map[[16]byte]int
}

// deleteTopics decides on a DeleteTopics request. A name or id that comes twice is answered once.
func (d *decider) deleteTopics(req *kmsg.DeleteTopicsRequest) (*kmsg.DeleteTopicsResponse, []record) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	del := deletion{map[string]int{}, map[string]int{}, map[[16]byte]int{}, map[[16]byte]int{}}
	entries := deleteEntries(req)
	for i := range entries {
		switch e := &entries[i]; {
		case e.Topic == nil:
			del.ids[e.TopicID]++
		case e.TopicID == [16]byte{}:
			del.names[*e.Topic]++
		}
	}
	if req.TimeoutMillis <= 0 && slices.ContainsFunc(entries, func(e kmsg.DeleteTopicsRequestTopic) bool {
		return namesTopic(e) && (e.Topic == nil && del.ids[e.TopicID] == 1 || e.Topic != nil && del.names[*e.Topic] == 1)
	}) {
		return failDeleteTopics(req, kerr.RequestTimedOut), nil
	}
	var records []record
	for i := range entries {
		e := &entries[i]
		if namesTopic(*e) && (e.Topic == nil && del.answeredIDs[e.TopicID] > 0 || e.Topic != nil && del.answeredNames[*e.Topic] > 0) {
			continue
		}
		t, err := d.deletable(e, &del)
		if t == nil && err == nil { // named by its name as well, and answered there
			continue
		}
		answer := kmsg.NewDeleteTopicsResponseTopic()
		answer.Topic, answer.TopicID = e.Topic, e.TopicID
		if t != nil {
			answer.Topic, answer.TopicID = kmsg.StringPtr(t.Name), t.ID
		}
		if err == nil {
			records = append(records, removeTopicRecord{t.ID})
		}
		answer.ErrorCode, answer.ErrorMessage = codeAndText(err)
		resp.Topics = append(resp.Topics, answer)
		if e.Topic == nil {
			del.answeredIDs[e.TopicID] = 1
		} else {
			del.answeredNames[*e.Topic] = 1
		}
	}
	return resp, records
}

// deletable finds the topic of one entry. It may come with an error, whose answer then names the topic in full; neither means that there is
// nothing to say.
func (d *decider) deletable(e *kmsg.DeleteTopicsRequestTopic, del *deletion) (*Topic, error) {
	zero := [16]byte{}
	switch {
	case e.Topic != nil && e.TopicID != zero:
		return nil, reject(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case e.Topic == nil && e.TopicID == zero:
		return nil, reject(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case e.Topic != nil && del.names[*e.Topic] > 1:
		return nil, reject(kerr.InvalidRequest, "Duplicate topic name.")
	case e.Topic == nil && del.ids[e.TopicID] > 1:
		return nil, reject(kerr.InvalidRequest, "Duplicate topic id.")
	case e.Topic != nil:
		t := d.im.Topic(*e.Topic)
		if t == nil {
			return nil, reject(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
		}
		if del.ids[t.ID] > 0 {
			return t, reject(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
		}
		return t, nil
	}
	t := d.im.TopicByID(e.TopicID)
	if t == nil {
		return nil, reject(kerr.UnknownTopicID, "This server does not host this topic ID.")
	}
	if del.names[t.Name] == 1 {
		return nil, nil
	}
	return t, nil
}

// namesTopic tells whether an entry names a topic in the one way or the other, and not in both.
func namesTopic(e kmsg.DeleteTopicsRequestTopic) bool {
	return (e.Topic != nil) != (e.TopicID != [16]byte{})
}

// deleteEntries are the topics of a request of any version.
func deleteEntries(req *kmsg.DeleteTopicsRequest) []kmsg.DeleteTopicsRequestTopic {
	if req.Version >= 6 {
		return req.Topics
	}
	entries := make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
	for i := range entries {
		entries[i].Topic = &req.TopicNames[i]
	}
	return entries
}

// createPartitions decides on a CreatePartitions request.
func (d *decider) createPartitions(req *kmsg.CreatePartitionsRequest) (*kmsg.CreatePartitionsResponse, []record) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	counts := map[string]int{}
	for i := range req.Topics {
		counts[req.Topics[i].Topic]++
	}
	for i := range req.Topics { // Kafka's order: these come first
		if name := req.Topics[i].Topic; counts[name] > 1 {
			counts[name] = 0
			resp.Topics = append(resp.Topics, partitionsAnswer(name, reject(kerr.InvalidRequest, "Duplicate topic name.")))
		}
	}
	if req.TimeoutMillis <= 0 && slices.ContainsFunc(req.Topics, func(t kmsg.CreatePartitionsRequestTopic) bool { return counts[t.Topic] > 0 }) {
		return failCreatePartitions(req, kerr.RequestTimedOut), nil
	}
	if err := d.checkAdditional(req, counts); err != nil {
		return failCreatePartitions(req, err), nil
	}
	var records []record
	for i := range req.Topics {
		t := &req.Topics[i]
		if counts[t.Topic] == 0 {
			continue
		}
		rec, err := d.addPartitions(t)
		if err == nil {
			records = append(records, rec)
		}
		resp.Topics = append(resp.Topics, partitionsAnswer(t.Topic, err))
	}
	if req.ValidateOnly {
		return resp, nil
	}
	return resp, records
}

// checkAdditional bounds the partitions of a request before anything is made of them.
func (d *decider) checkAdditional(req *kmsg.CreatePartitionsRequest, counts map[string]int) error {
	total := int64(0)
	for i := range req.Topics {
		t := &req.Topics[i]
		if topic := d.im.Topic(t.Topic); topic != nil && counts[t.Topic] > 0 {
			total += max(0, int64(t.Count)-int64(len(topic.Partitions)))
		}
	}
	if total > maxBatch {
		return reject(kerr.PolicyViolation, "Excessively large number of additional partitions per request.")
	}
	return nil
}

func (d *decider) addPartitions(t *kmsg.CreatePartitionsRequestTopic) (record, error) {
	topic := d.im.Topic(t.Topic)
	if topic == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	first := len(topic.Partitions)
	switch {
	case int(t.Count) == first:
		return nil, reject(kerr.InvalidPartitions, "Topic already has %d partition(s).", first)
	case int(t.Count) < first:
		return nil, reject(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, first, t.Count)
	}
	n, factor := int(t.Count)-first, len(topic.Partitions[0].Replicas)
	if t.Assignment == nil {
		partitions, err := d.placeNew(topic.ID, first, n, factor)
		if err != nil {
			return nil, err
		}
		return partitionsRecord{topic.ID, int32(first), partitions}, nil
	}
	if n != len(t.Assignment) {
		return nil, reject(kerr.InvalidReplicaAssignment,
			"Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", n, len(t.Assignment))
	}
	partitions := make([]Partition, n)
	for i := range t.Assignment {
		if err := d.checkReplicas(t.Assignment[i].Replicas, factor); err != nil {
			return nil, err
		}
		p, ok := d.partition(t.Assignment[i].Replicas)
		if !ok {
			return nil, reject(kerr.InvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", first+i)
		}
		partitions[i] = p
	}
	return partitionsRecord{topic.ID, int32(first), partitions}, nil
}
