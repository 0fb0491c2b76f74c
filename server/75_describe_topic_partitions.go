package server

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// DescribeTopicPartitions (75), version 0 (KIP-966).
//
// Behavior
//   - Topics come ascending by name, each once, whatever the order of the request; no topic in the request means all.
//   - At most ResponsePartitionLimit partitions are answered, and never more than max.request.partition.size.limit or
//     less than one. What is left is where the next cursor points to: to the first partition that did not fit, or to
//     partition 0 of the next name, which need not exist.
//   - The cursor skips the names below its topic. With topics given it must name one of them, and its partition must
//     not be negative; otherwise each topic of the request is answered INVALID_REQUEST, in the order of the request.
//   - A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a name that is none INVALID_TOPIC_EXCEPTION; neither
//     counts against the limit.
//   - A partition without a leader that the client can reach has leader -1, and no error of its own.
//   - Eligible leader replicas are empty lists, not null.
//
// Where we differ: Kafka answers the whole request with UNKNOWN_SERVER_ERROR when one of the names is empty. Here that
// one is INVALID_TOPIC_EXCEPTION and the others are answered.

// topicOperations are the operations that an ACL can allow on a topic, as a bit field: without an authorizer everybody may.
const topicOperations = 1<<kmsg.ACLOperationRead | 1<<kmsg.ACLOperationWrite | 1<<kmsg.ACLOperationCreate | 1<<kmsg.ACLOperationDelete |
	1<<kmsg.ACLOperationAlter | 1<<kmsg.ACLOperationDescribe | 1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs

func (s *Server) handleDescribeTopicPartitions(r *request) pending {
	req := r.body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	if !validCursor(req) {
		for _, t := range req.Topics {
			row := kmsg.NewDescribeTopicPartitionsResponseTopic()
			row.Topic, row.ErrorCode = &t.Topic, kerr.InvalidRequest.Code
			resp.Topics = append(resp.Topics, row)
		}
		return answer(resp)
	}
	im := s.image()
	limit := int(s.cfg().Int("max.request.partition.size.limit"))
	d := topicDescriber{im: im, reachable: s.reachable(r, im), resp: resp, left: max(min(limit, int(req.ResponsePartitionLimit)), 1)}
	if c := req.Cursor; c != nil {
		d.from, d.fromPartition = c.Topic, c.Partition
	}
	for _, name := range describedNames(im, req, d.from) {
		if !d.add(name) {
			break
		}
	}
	return answer(resp)
}

// validCursor tells if the cursor is one that an earlier answer to such a request may have held.
func validCursor(req *kmsg.DescribeTopicPartitionsRequest) bool {
	if req.Cursor == nil {
		return true
	}
	if req.Cursor.Partition < 0 {
		return false
	}
	return len(req.Topics) == 0 || slices.ContainsFunc(req.Topics, func(t kmsg.DescribeTopicPartitionsRequestTopic) bool {
		return t.Topic == req.Cursor.Topic
	})
}

// describedNames gives the names that a request asks for, from the cursor's on, ascending and each once.
func describedNames(im *cluster.Image, req *kmsg.DescribeTopicPartitionsRequest, from string) []string {
	var names []string
	if len(req.Topics) == 0 {
		for t := range im.Topics() {
			if t.Name >= from {
				names = append(names, t.Name)
			}
		}
		return names
	}
	for _, t := range req.Topics {
		if t.Topic >= from {
			names = append(names, t.Topic)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// topicDescriber fills a response up to its limit.
type topicDescriber struct {
	im            *cluster.Image
	reachable     map[int32]bool // brokers that the client can be sent to
	resp          *kmsg.DescribeTopicPartitionsResponse
	left          int // partitions that still fit
	from          string
	fromPartition int32 // of topic from; the others start at 0
}

// add answers one topic, and tells if there may be room for another.
func (d *topicDescriber) add(name string) bool {
	if d.left == 0 {
		d.stopAt(name, 0)
		return false
	}
	row := kmsg.NewDescribeTopicPartitionsResponseTopic()
	row.Topic = &name
	row.IsInternal = cluster.IsInternal(name)
	row.AuthorizedOperations = topicOperations
	t := d.im.Topic(name)
	if t == nil {
		row.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if cluster.CheckTopicName(name) != nil {
			row.ErrorCode = kerr.InvalidTopicException.Code
		}
		d.resp.Topics = append(d.resp.Topics, row)
		return true
	}
	row.TopicID = t.ID
	first := int32(0)
	if name == d.from {
		first = min(d.fromPartition, int32(len(t.Partitions)))
	}
	next := min(int(first)+d.left, len(t.Partitions))
	for i := int(first); i < next; i++ {
		row.Partitions = append(row.Partitions, d.partition(int32(i), &t.Partitions[i]))
	}
	d.left -= next - int(first)
	d.resp.Topics = append(d.resp.Topics, row)
	if next < len(t.Partitions) {
		d.stopAt(name, int32(next))
		return false
	}
	return true
}

func (d *topicDescriber) stopAt(topic string, partition int32) {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = strings.Clone(topic), partition
	d.resp.NextCursor = &c
}

func (d *topicDescriber) partition(index int32, p *cluster.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	row := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	row.Partition, row.LeaderID, row.LeaderEpoch = index, -1, p.LeaderEpoch
	if d.reachable[p.Leader] {
		row.LeaderID = p.Leader
	}
	row.Replicas, row.ISR = p.Replicas, p.ISR
	row.EligibleLeaderReplicas, row.LastKnownELR = []int32{}, []int32{}
	if p.Leader < 0 {
		row.ISR, row.EligibleLeaderReplicas = []int32{}, p.ISR
	}
	for _, id := range p.Replicas {
		if !d.reachable[id] || d.im.Offline(p, id) {
			row.OfflineReplicas = append(row.OfflineReplicas, id)
		}
	}
	return row
}

// reachable gives the brokers that are alive and have the listener by which r came.
func (s *Server) reachable(r *request, im *cluster.Image) map[int32]bool {
	brokers := make(map[int32]bool)
	for _, b := range im.Brokers() {
		if host, _ := s.endpoint(r, b); host != "" && !b.Fenced {
			brokers[b.ID] = true
		}
	}
	return brokers
}
