package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// OffsetDelete (47), version 0.
//
// Behavior
//   - Removes committed offsets, and what open transactions hold for those partitions. It is no error if there is none.
//   - What is wrong with the group comes before what is wrong with topics.
//   - Topics that the members of the group read are GROUP_SUBSCRIBED_TO_TOPIC, unknown ones UNKNOWN_TOPIC_OR_PARTITION.
//     A group with members of another protocol than consumers' is NON_EMPTY_GROUP.

func (s *Server) handleOffsetDelete(r *request) pending {
	req := r.body.(*kmsg.OffsetDeleteRequest)
	refused := splitOffsetDelete(s.image(), req)
	finish := func(v any, err error) kmsg.Response {
		resp, _ := v.(*kmsg.OffsetDeleteResponse)
		if err != nil {
			resp = req.ResponseKind().(*kmsg.OffsetDeleteResponse)
			resp.ErrorCode = s.groupCode(err)
		}
		if resp.ErrorCode != 0 {
			return resp
		}
		for _, t := range resp.Topics {
			mergeOffsetDelete(refused, t)
		}
		return refused
	}
	shard, err := s.namedGroupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	p := shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
		return m.OffsetDelete(to, req)
	})
	return s.awaitGroupWrite(p, finish)
}

// splitOffsetDelete gives the answer to the partitions that don't exist, and leaves the others in req.
func splitOffsetDelete(im *cluster.Image, req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	refused := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	keep := req.Topics[:0]
	for _, t := range req.Topics {
		topic := im.Topic(t.Topic)
		row := kmsg.NewOffsetDeleteResponseTopic()
		row.Topic = t.Topic
		good := t.Partitions[:0]
		for _, p := range t.Partitions {
			if topic != nil && hasPartition(topic, p.Partition) {
				good = append(good, p)
				continue
			}
			row.Partitions = append(row.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
				Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code,
			})
		}
		if len(row.Partitions) > 0 {
			mergeOffsetDelete(refused, row)
		}
		if len(good) > 0 {
			t.Partitions = good
			keep = append(keep, t)
		}
	}
	req.Topics = keep
	return refused
}

// mergeOffsetDelete adds the row of a topic to those that are there.
func mergeOffsetDelete(resp *kmsg.OffsetDeleteResponse, t kmsg.OffsetDeleteResponseTopic) {
	for i := range resp.Topics {
		if row := &resp.Topics[i]; row.Topic == t.Topic {
			row.Partitions = append(row.Partitions, t.Partitions...)
			return
		}
	}
	resp.Topics = append(resp.Topics, t)
}
