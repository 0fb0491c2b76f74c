package server

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch (23), versions 2 to 4.
//
// Behavior
//   - Tells where a leader epoch ended: at the first offset of the next one, or at the log's end for the current. An epoch that
//     is unknown is -1 with -1. Only the leader answers.
//   - The answer comes with the epoch that it is about, which is an older one where the one asked for has no records.
//
// Version notes: 3 has the id of the replica that asks; consumers are -1, and nothing depends on it. 4 is flexible.

func (s *Server) handleOffsetForLeaderEpoch(r *request) pending {
	req := r.body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			row := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			row.Partition, row.LeaderEpoch, row.EndOffset = p.Partition, -1, -1
			if replica := s.replicas.Get(t.Topic, p.Partition); replica == nil {
				row.ErrorCode = errorCode(s.absent(t.Topic, p.Partition))
			} else if end, err := replica.EndOffsetForEpoch(p.CurrentLeaderEpoch, p.LeaderEpoch); err != nil {
				row.ErrorCode = s.codeOf(err, "topic", t.Topic, "partition", p.Partition)
			} else {
				row.LeaderEpoch, row.EndOffset = end.Epoch, end.EndOffset
			}
			rt.Partitions = append(rt.Partitions, row)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}
