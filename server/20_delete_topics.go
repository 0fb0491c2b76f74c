package server

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics (20), versions 1 to 6.
//
// Behavior
//   - Each topic is deleted or refused by itself. Its name is free at once, for a topic with another id. The answer waits until this node
//     serves the topic no more.
//   - Internal topics can be deleted.
//   - With delete.topic.enable=false every topic is TOPIC_DELETION_DISABLED, INVALID_REQUEST before version 3.
//   - A timeout of 0 or less is REQUEST_TIMED_OUT, and nothing is deleted.
//   - What is named twice, by name or by id, is answered once, with INVALID_REQUEST.
//
// Version notes
//   - 5: error messages.
//   - 6: topics by name or by id, in entries that must not have both. The answer has both.
//
// Where we differ: Kafka's answer has the topics in random order; here it is that of the request.

func (s *Server) handleDeleteTopics(r *request) pending {
	req := r.body.(*kmsg.DeleteTopicsRequest)
	ctx, cancel := context.WithTimeout(s.ctx, adminWait(req.TimeoutMillis))
	defer cancel()
	resp := s.ctrl.DeleteTopics(ctx, req)
	if slices.ContainsFunc(resp.Topics, func(t kmsg.DeleteTopicsResponseTopic) bool { return t.ErrorCode == 0 }) {
		s.applied(ctx)
	}
	return answer(resp)
}
