package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords (21), versions 0 to 2.
//
// Behavior
//   - Raises the log start of partitions to an offset, or to the high watermark for -1, and answers the low watermark once
//     all replicas have got there: with this node as the only replica, at once.
//   - Internal topics are INVALID_TOPIC_EXCEPTION, topics that are compacted only POLICY_VIOLATION. A partition that is named
//     twice counts as its last. Errors come with -1.
//
// Version notes: 2 is flexible; nothing else has changed.

func (s *Server) handleDeleteRecords(r *request) pending {
	req := r.body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	places := make(map[txnPartition][2]int)
	topics := make(map[string]int)
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue
		}
		at, named := topics[t.Topic]
		if !named {
			at = len(resp.Topics)
			topics[t.Topic] = at
			rt := kmsg.NewDeleteRecordsResponseTopic()
			rt.Topic = t.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		rt := &resp.Topics[at]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key := txnPartition{t.Topic, p.Partition}
			if _, twice := places[key]; !twice {
				row := kmsg.NewDeleteRecordsResponseTopicPartition()
				row.Partition, row.LowWatermark = p.Partition, -1
				rt.Partitions = append(rt.Partitions, row)
				places[key] = [2]int{at, len(rt.Partitions) - 1}
			}
			place := places[key]
			resp.Topics[place[0]].Partitions[place[1]].LowWatermark = p.Offset // until all have been taken
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			row := &t.Partitions[j]
			low, err := s.deleteRecords(t.Topic, row.Partition, row.LowWatermark)
			row.LowWatermark = low
			if err != nil {
				row.LowWatermark, row.ErrorCode = -1, s.codeOf(err, "topic", t.Topic, "partition", row.Partition)
			}
		}
	}
	return answer(resp)
}

func (s *Server) deleteRecords(topic string, index int32, offset int64) (low int64, err error) {
	replica := s.replicas.Get(topic, index)
	switch {
	case replica == nil:
		return -1, s.absent(topic, index)
	case isInternal(topic):
		return -1, kerr.InvalidTopicException
	}
	return replica.DeleteRecords(offset)
}
