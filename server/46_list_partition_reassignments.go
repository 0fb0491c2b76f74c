package server

// ListPartitionReassignments (46), version 0.
//
// Behavior
//   - Tells the reassignments that are in progress, which is none; unknown topics and timeouts are no errors.

func (s *Server) handleListPartitionReassignments(r *request) pending {
	return answer(r.body.ResponseKind())
}
