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
		if len(refused.Topics) == 0 {
			return resp
		}
		for _, t := range resp.Topics {
			refused.add(t)
		}
		return refused.OffsetDeleteResponse
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
func splitOffsetDelete(im *cluster.Image, req *kmsg.OffsetDeleteRequest) refusedOffsetDelete {
	refused := refusedOffsetDelete{OffsetDeleteResponse: req.ResponseKind().(*kmsg.OffsetDeleteResponse)}
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
		if len(row.Partitions) > 0 || topic == nil {
			refused.add(row)
		}
		if len(good) > 0 {
			t.Partitions = good
			keep = append(keep, t)
		}
	}
	req.Topics = keep
	return refused
}

// refusedOffsetDelete is the answer to what has been refused so far, to which the rest is added.
type refusedOffsetDelete struct {
	*kmsg.OffsetDeleteResponse
	rows topicRows
}

// add adds the row of a topic to the one that is there.
func (r *refusedOffsetDelete) add(t kmsg.OffsetDeleteResponseTopic) {
	if at, found := r.rows.place(t.Topic, [16]byte{}, len(r.Topics)); found {
		r.Topics[at].Partitions = append(r.Topics[at].Partitions, t.Partitions...)
	} else {
		r.Topics = append(r.Topics, t)
	}
}
