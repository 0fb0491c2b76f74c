package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (44), versions 0 and 1.
//
// Behavior
//   - Sets, removes, appends to and subtracts from single configs of a resource. Each resource is altered or refused by itself, as a whole.
//   - Resources: topics, brokers (this one by its id, or "" for the cluster's defaults), groups, client metrics subscriptions. There is one logger,
//     whose level cannot be altered.
//   - Removing what is not set, or not known, is no error. Appending to a config that is not set starts from its default.
//   - A resource that comes twice is INVALID_REQUEST each time, and so is a resource whose keys come twice.
//   - The answer waits until the configs are in effect here.
//
// Where we differ: an operation that does not exist makes Kafka's controller resign and is UNKNOWN_SERVER_ERROR; here it is INVALID_REQUEST.

func (s *Server) handleIncrementalAlterConfigs(r *request) pending {
	req := r.body.(*kmsg.IncrementalAlterConfigsRequest)
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	resp := s.ctrl.IncrementalAlterConfigs(ctx, req)
	if !req.ValidateOnly {
		s.applied(ctx)
	}
	return answer(resp)
}
