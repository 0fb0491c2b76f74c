package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartitionReassignments (45), versions 0 and 1.
//
// Behavior
//   - The one broker that there is has all replicas: a partition may be assigned to it, which changes nothing, and to no other
//     (INVALID_REPLICA_ASSIGNMENT). Null replicas cancel a reassignment, and none is ever in progress.
//   - A timeout of 0 or less is REQUEST_TIMED_OUT, for the whole and for each partition.
//   - AllowReplicationFactorChange is echoed, but for answers without partitions and for errors of the whole, where it is true.
//
// Version notes
//   - 1: AllowReplicationFactorChange (KIP-860).

func (s *Server) handleAlterPartitionReassignments(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.AlterAssignments(ctx, r.body.(*kmsg.AlterPartitionAssignmentsRequest)))
}
