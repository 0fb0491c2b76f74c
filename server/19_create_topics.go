package server

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics (19), versions 2 to 7.
//
// Behavior
//   - Each topic is created or refused by itself, all that are created at once: other clients see all of them or none. Which is refused, and in
//     what words, is decided in package cluster.
//   - The answer waits until the new partitions can be written to here, at most for the timeout of the request.
//   - A timeout of 0 or less is REQUEST_TIMED_OUT, and nothing is created.
//   - A name that comes twice is INVALID_REQUEST, once, behind all other topics.
//   - More than 10,000 records (topics, partitions and configs each are one) are POLICY_VIOLATION for the whole request.
//   - Validating only answers the same, with an id that no topic gets.
//
// Version notes
//   - 5: the answer has the number of partitions, the replication factor and all configs of each topic, with values as they were set.
//   - 7: and the topic's id.

func (s *Server) handleCreateTopics(r *request) pending {
	req := r.body.(*kmsg.CreateTopicsRequest)
	ctx, cancel := context.WithTimeout(s.ctx, adminWait(req.TimeoutMillis))
	defer cancel()
	resp := s.ctrl.CreateTopics(ctx, req)
	if !req.ValidateOnly && slices.ContainsFunc(resp.Topics, func(t kmsg.CreateTopicsResponseTopic) bool { return t.ErrorCode == 0 }) {
		s.applied(ctx)
	}
	return answer(resp)
}

// Bounds on how long a request that changes metadata is worked on, whatever its client says: a decision that is under way when the time is up is
// taken all the same, so a little patience saves the client from not knowing.
const (
	adminWaitMin = 100 * time.Millisecond
	adminWaitMax = 2 * time.Minute
)

func adminWait(timeoutMillis int32) time.Duration {
	return min(max(time.Duration(timeoutMillis)*time.Millisecond, adminWaitMin), adminWaitMax)
}
