package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ElectLeaders (43), versions 0 to 2.
//
// Behavior
//   - Of one replica, which leads, there is nothing to elect: ELECTION_NOT_NEEDED. A partition whose only replica is offline has no leader to
//     elect: PREFERRED_LEADER_NOT_AVAILABLE, or ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election.
//   - Null topics ask for all partitions; those that need no election are left out then, their topics are not.
//   - A timeout of 0 or less is REQUEST_TIMED_OUT, an election type that does not exist INVALID_REQUEST: for each partition, and (version 1) for
//     the whole.
//
// Version notes
//   - 0: preferred elections only. 1: unclean ones (KIP-460). 2: flexible.

func (s *Server) handleElectLeaders(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.ElectLeaders(ctx, r.body.(*kmsg.ElectLeadersRequest)))
}
