package server

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// SyncGroup (14), versions 0 to 5.
//
// Behavior
//   - The leader's brings the assignments of all members; those who have none get an empty one. They are stored, and
//     then all parked syncs are answered.
//   - The others' are parked until then; in a stable group they are answered at once.
//
// Version notes: v3 adds the instance id; v4 is flexible; v5 adds protocol type and name, which must be there and be
// the group's, else INCONSISTENT_GROUP_PROTOCOL.
//
// Where we differ: a parked sync whose member leaves, or syncs once more, is answered (UNKNOWN_MEMBER_ID,
// REBALANCE_IN_PROGRESS); Kafka never answers it.

func (s *Server) handleSyncGroup(r *request) pending {
	req := r.body.(*kmsg.SyncGroupRequest)
	finish := func(v any, err error) kmsg.Response {
		resp, _ := v.(*kmsg.SyncGroupResponse)
		if err != nil {
			resp = req.ResponseKind().(*kmsg.SyncGroupResponse)
			resp.ErrorCode, resp.MemberAssignment = s.groupCode(err), []byte{}
		}
		resp.Version = req.Version
		return resp
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		return answer(finish(nil, kerr.InconsistentGroupProtocol))
	}
	shard, err := s.namedGroupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	for i := range req.GroupAssignment {
		// The operation may run when the request's buffer is another's.
		req.GroupAssignment[i].MemberAssignment = bytes.Clone(req.GroupAssignment[i].MemberAssignment)
	}
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.SyncGroup(now, to, req)
	})
	return awaitCoordinated(p, finish)
}
