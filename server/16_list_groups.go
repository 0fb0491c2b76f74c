package server

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// ListGroups (16), versions 0 to 5.
//
// Behavior
//   - Lists the groups that this broker coordinates. COORDINATOR_LOAD_IN_PROGRESS while it still loads some of them.
//   - The filters know no case, and nothing matches a state or type that doesn't exist.
//
// Version notes: v3 is flexible; v4 adds the state and a filter by it, v5 the type and a filter by that.

func (s *Server) handleListGroups(r *request) pending {
	req := r.body.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	shards, loading := s.groups.Shards()
	if loading {
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return answer(resp)
	}
	calls := make(groupCalls, len(shards))
	for i, shard := range shards {
		calls[i].pending = shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
			return m.ListGroups(to, req.StatesFilter, req.TypesFilter)
		})
	}
	return calls.pending(func(ctx context.Context) kmsg.Response {
		for i := range calls {
			v, err := calls[i].await(ctx)
			if err != nil {
				continue // it went to another broker just now, which lists its groups
			}
			resp.Groups = append(resp.Groups, v.([]kmsg.ListGroupsResponseGroup)...)
		}
		return resp
	})
}
