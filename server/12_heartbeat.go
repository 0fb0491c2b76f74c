package server

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// Heartbeat (12), versions 0 to 4.
//
// Behavior
//   - Keeps a member in its group, and tells it of a rebalance (REBALANCE_IN_PROGRESS). Writes nothing.
//   - While the coordinator loads, everybody is told that all is well: their sessions begin when it has loaded.
//
// Version notes: v3 adds the instance id; v4 is flexible.

func (s *Server) handleHeartbeat(r *request) pending {
	req := r.body.(*kmsg.HeartbeatRequest)
	finish := func(v any, err error) kmsg.Response {
		if err == nil {
			return v.(*kmsg.HeartbeatResponse)
		}
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		if !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			resp.ErrorCode = s.groupCode(err)
		}
		return resp
	}
	shard, err := s.namedGroupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.Heartbeat(now, to, req)
	})
	return s.awaitGroupWrite(p, finish)
}
