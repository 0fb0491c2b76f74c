package server

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// JoinGroup (11), versions 0 to 9.
//
// Behavior
//   - Parked until the join phase of the group ends: for a new group after group.initial.rebalance.delay.ms, else when
//     all members are back or the longest rebalance timeout is over.
//   - The answer to the leader names all members with their metadata. The protocol is the one that all offer and most
//     prefer.
//   - A member that repeats itself while nothing has changed is answered at once, but for the leader of a stable group,
//     who asks for a rebalance that way.
//   - A refusal gives the member id of the request back.
//
// Version notes: v1 adds the rebalance timeout (v0: the session timeout); v4 gives a new dynamic member its id first
// (MEMBER_ID_REQUIRED, KIP-394); v5 adds static members (KIP-345); v6 is flexible; v7 adds the protocol type to the
// answer; v8 adds a reason; v9 lets a returning static leader skip the assignment (KIP-814).
//
// Where we differ: a join that is parked while its member joins once more is answered REBALANCE_IN_PROGRESS; Kafka
// never answers it.

func (s *Server) handleJoinGroup(r *request) pending {
	req := r.body.(*kmsg.JoinGroupRequest)
	finish := func(v any, err error) kmsg.Response {
		resp, _ := v.(*kmsg.JoinGroupResponse)
		if err != nil {
			resp = req.ResponseKind().(*kmsg.JoinGroupResponse)
			resp.ErrorCode, resp.Generation, resp.MemberID = s.groupCode(err), -1, req.MemberID
		}
		resp.Version = req.Version
		if resp.Version >= 7 && resp.Protocol != nil && *resp.Protocol == "" {
			resp.Protocol = nil // as in Kafka, for a protocol without a name too
		}
		return resp
	}
	shard, err := s.namedGroupShard(req.Group)
	if err != nil {
		return answer(finish(nil, err))
	}
	for i := range req.Protocols {
		// The group outlives the request's buffer.
		req.Protocols[i].Metadata = bytes.Clone(req.Protocols[i].Metadata)
	}
	client := s.groupClient(r)
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.JoinGroup(now, to, client, req)
	})
	return awaitCoordinated(p, finish)
}
