package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions (37), versions 0 to 3.
//
// Behavior
//   - Gives a topic more partitions: Count is how many it has then. Each topic is extended or refused by itself. The answer waits until the new
//     partitions can be written to here.
//   - A name that comes twice is INVALID_REQUEST, once, before all other topics; a timeout of 0 or less REQUEST_TIMED_OUT for the others.
//   - More than 10,000 new partitions are POLICY_VIOLATION for the whole request.
//   - Replicas may be given for each new partition, as many as the topic has.

func (s *Server) handleCreatePartitions(r *request) pending {
	req := r.body.(*kmsg.CreatePartitionsRequest)
	ctx, cancel := context.WithTimeout(s.ctx, adminWait(req.TimeoutMillis))
	defer cancel()
	resp := s.ctrl.CreatePartitions(ctx, req)
	if !req.ValidateOnly && slices.ContainsFunc(resp.Topics, func(t kmsg.CreatePartitionsResponseTopic) bool { return t.ErrorCode == 0 }) {
		s.applied(ctx)
	}
	return answer(resp)
}
