package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs (33), versions 0 to 2.
//
// Behavior
//   - Replaces all dynamic configs of a resource by those of the request. Each resource is altered or refused by itself.
//   - Resources: topics, brokers (this one by its id, or "" for the cluster's defaults), groups, client metrics subscriptions.
//   - The answer waits until the configs are in effect here.
//
// Where we differ: Kafka never answers a request that names a resource twice. Here each of the two is INVALID_REQUEST, as in
// IncrementalAlterConfigs.

func (s *Server) handleAlterConfigs(r *request) pending {
	req := r.body.(*kmsg.AlterConfigsRequest)
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	resp := s.ctrl.AlterConfigs(ctx, req)
	if !req.ValidateOnly {
		s.applied(ctx)
	}
	return answer(resp)
}
