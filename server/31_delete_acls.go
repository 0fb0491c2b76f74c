package server

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteAcls (31), versions 1 to 3.
//
// Behavior
//   - There is no authorizer: SECURITY_DISABLED for each filter.
//   - A filter with a type, pattern, operation or permission of 0 (unknown) closes the connection.

func (s *Server) handleDeleteACLs(r *request) pending {
	req := r.body.(*kmsg.DeleteACLsRequest)
	if slices.ContainsFunc(req.Filters, func(f kmsg.DeleteACLsRequestFilter) bool {
		return unknownACL(f.ResourceType, f.ResourcePatternType, f.Operation, f.PermissionType)
	}) {
		return hangup()
	}
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	for range req.Filters {
		row := kmsg.NewDeleteACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = kerr.SecurityDisabled.Code, new(noAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	return answer(resp)
}
