package server

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateAcls (30), versions 1 to 3.
//
// Behavior
//   - There is no authorizer: SECURITY_DISABLED for each ACL, whatever it says.
//   - An ACL with a type, pattern, operation or permission of 0 (unknown) closes the connection.

func (s *Server) handleCreateACLs(r *request) pending {
	req := r.body.(*kmsg.CreateACLsRequest)
	if slices.ContainsFunc(req.Creations, func(c kmsg.CreateACLsRequestCreation) bool {
		return unknownACL(c.ResourceType, c.ResourcePatternType, c.Operation, c.PermissionType)
	}) {
		return hangup()
	}
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for range req.Creations {
		row := kmsg.NewCreateACLsResponseResult()
		row.ErrorCode, row.ErrorMessage = kerr.SecurityDisabled.Code, new(noAuthorizer)
		resp.Results = append(resp.Results, row)
	}
	return answer(resp)
}
