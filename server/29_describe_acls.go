package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeAcls (29), versions 1 to 3.
//
// Behavior
//   - There is no authorizer: SECURITY_DISABLED.
//   - A filter with a type, pattern, operation or permission of 0 (unknown) closes the connection; other numbers that mean nothing don't.
//
// Version notes
//   - 2: flexible. 3: the resource type USER.

func (s *Server) handleDescribeACLs(r *request) pending {
	req := r.body.(*kmsg.DescribeACLsRequest)
	if unknownACL(req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType) {
		return hangup()
	}
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, new("No Authorizer is configured on the broker")
	return answer(resp)
}

// unknownACL tells whether a part of an ACL or of a filter for ACLs is the number that stands for what a client doesn't know.
func unknownACL(resource kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, operation kmsg.ACLOperation, permission kmsg.ACLPermissionType) bool {
	return resource == kmsg.ACLResourceTypeUnknown || pattern == kmsg.ACLResourcePatternTypeUnknown ||
		operation == kmsg.ACLOperationUnknown || permission == kmsg.ACLPermissionTypeUnknown
}

// noAuthorizer is what is said to who would alter ACLs.
const noAuthorizer = "No Authorizer is configured."
