package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs (44), versions 0 and 1.
//
// Behavior
//   - Sets, removes, appends to and subtracts from single configs of a resource. Each resource is altered or refused by itself, as a whole.
//   - Resources: topics, brokers (this one by its id, or "" for the cluster's defaults), groups, client metrics subscriptions, and this broker's
//     loggers, whose levels hold until it stops.
//   - Removing what is not set, or not known, is no error. Appending to a config that is not set starts from its default.
//   - A resource that comes twice is INVALID_REQUEST each time, and so is a resource whose keys come twice.
//   - The answer waits until the configs are in effect here.
//
// Where we differ: an operation that does not exist makes Kafka's controller resign and is UNKNOWN_SERVER_ERROR; here it is INVALID_REQUEST.

func (s *Server) handleIncrementalAlterConfigs(r *request) pending {
	req := r.body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	shared := *req // what is for the cluster: all but this node's loggers
	shared.Resources = nil
	times := map[string]int{}
	for _, rr := range req.Resources {
		if rr.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
			times[rr.ResourceName]++
		} else {
			shared.Resources = append(shared.Resources, rr)
		}
	}
	decided := s.alterShared(&shared)
	for i := range req.Resources {
		rr := &req.Resources[i]
		if rr.ResourceType != kmsg.ConfigResourceTypeBrokerLogger {
			resp.Resources, decided = append(resp.Resources, decided[0]), decided[1:]
			continue
		}
		err := withMessage(kerr.InvalidRequest, "Each resource must appear at most once.")
		if times[rr.ResourceName] == 1 {
			err = s.alterLoggers(rr, req.ValidateOnly)
		}
		row := kmsg.NewIncrementalAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = rr.ResourceType, rr.ResourceName
		row.ErrorCode, row.ErrorMessage = errorCode(err), errorMessage(err)
		resp.Resources = append(resp.Resources, row)
	}
	return answer(resp)
}

// alterShared has the metadata altered, and gives one answer per resource.
func (s *Server) alterShared(req *kmsg.IncrementalAlterConfigsRequest) []kmsg.IncrementalAlterConfigsResponseResource {
	if len(req.Resources) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	resp := s.ctrl.IncrementalAlterConfigs(ctx, req)
	if !req.ValidateOnly {
		s.applied(ctx)
	}
	return resp.Resources
}
