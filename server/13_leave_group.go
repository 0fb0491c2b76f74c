package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// LeaveGroup (13), versions 0 to 5.
//
// Behavior
//   - Takes members out of a group, which rebalances. A parked join or sync of theirs is answered UNKNOWN_MEMBER_ID.
//   - An instance id without a member id takes a static member out, whoever it is now.
//
// Version notes: up to v2 one member, whose error is the request's; from v3 on several, each with its own; v4 is
// flexible; v5 adds a reason.

func (s *Server) handleLeaveGroup(r *request) pending {
	req := r.body.(*kmsg.LeaveGroupRequest)
	finish := func(v any, err error) kmsg.Response {
		if err == nil {
			return v.(*kmsg.LeaveGroupResponse)
		}
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = s.groupCode(err)
		return resp
	}
	shard, err := s.namedGroupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.LeaveGroup(now, to, req)
	})
	return s.awaitGroupWrite(p, finish)
}
