package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// OffsetCommit (8), versions 2 to 10.
//
// Behavior
//   - Stores offsets of a group, in one batch: from a member of the present generation, or with generation -1 for a
//     group without members, which is made if need be.
//   - Partitions that don't exist are refused by themselves (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID), and come
//     first in the answer; so is metadata that is too long. What is wrong with the sender goes for all partitions.
//   - Offsets and epochs are stored as they are given, also negative ones.
//
// Version notes: v2 to v4 may give a retention time of their own; v5 dropped it; v6 adds the leader epoch, v7 the
// instance id; v8 is flexible; v9 says GROUP_ID_NOT_FOUND where ILLEGAL_GENERATION was said before; v10 has topic ids
// instead of names.

func (s *Server) handleOffsetCommit(r *request) pending {
	req := r.body.(*kmsg.OffsetCommitRequest)
	refused := splitOffsetCommit(s.image(), req)
	if len(req.Topics) == 0 {
		return answer(refused.OffsetCommitResponse)
	}
	finish := func(v any, err error) kmsg.Response {
		resp, _ := v.(*kmsg.OffsetCommitResponse)
		if err != nil {
			resp = allOffsetCommit(req, s.groupCode(err))
		}
		if len(refused.Topics) == 0 {
			return resp
		}
		for _, t := range resp.Topics {
			refused.add(t)
		}
		return refused.OffsetCommitResponse
	}
	shard, err := s.groupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.OffsetCommit(now, to, req)
	})
	return s.awaitGroupWrite(p, finish)
}

// splitOffsetCommit gives the answer to the partitions that don't exist, and leaves the others in req, each topic with
// its name and its id.
func splitOffsetCommit(im *cluster.Image, req *kmsg.OffsetCommitRequest) refusedOffsetCommit {
	refused := refusedOffsetCommit{req.ResponseKind().(*kmsg.OffsetCommitResponse), topicRows{byID: req.Version >= 10}}
	keep := req.Topics[:0]
	for _, t := range req.Topics {
		topic, code := committable(im, refused.rows.byID, t.Topic, t.TopicID)
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		good := t.Partitions[:0]
		for _, p := range t.Partitions {
			if topic != nil && hasPartition(topic, p.Partition) {
				good = append(good, p)
				continue
			}
			if topic != nil {
				code = kerr.UnknownTopicOrPartition.Code
			}
			row.Partitions = append(row.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		if len(row.Partitions) > 0 || topic == nil {
			refused.add(row)
		}
		if len(good) > 0 {
			t.Topic, t.TopicID, t.Partitions = topic.Name, topic.ID, good
			keep = append(keep, t)
		}
	}
	req.Topics = keep
	return refused
}

// allOffsetCommit answers all partitions with one code.
func allOffsetCommit(req *kmsg.OffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range req.Topics {
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			row.Partitions = append(row.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// refusedOffsetCommit is the answer to what has been refused so far, to which the rest is added.
type refusedOffsetCommit struct {
	*kmsg.OffsetCommitResponse
	rows topicRows
}

// add adds the row of a topic to the one that is there.
func (r *refusedOffsetCommit) add(t kmsg.OffsetCommitResponseTopic) {
	if at, found := r.rows.place(t.Topic, t.TopicID, len(r.Topics)); found {
		r.Topics[at].Partitions = append(r.Topics[at].Partitions, t.Partitions...)
	} else {
		r.Topics = append(r.Topics, t)
	}
}
