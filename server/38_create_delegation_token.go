package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateDelegationToken (38), versions 1 to 3.
//
// Behavior
//   - A token is only for who has authenticated: on a listener where nobody does, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. The answer names
//     who asks, and whom the token would have been for.
//
// Version notes
//   - 3: a token can be had for somebody else (KIP-373), and the answer names who asked.

// anonymous is the principal of those who have not authenticated.
const (
	principalTypeUser = "User"
	anonymous         = "ANONYMOUS"
)

func (s *Server) handleCreateDelegationToken(r *request) pending {
	req := r.body.(*kmsg.CreateDelegationTokenRequest)
	resp := req.ResponseKind().(*kmsg.CreateDelegationTokenResponse)
	resp.ErrorCode = kerr.DelegationTokenRequestNotAllowed.Code
	resp.PrincipalType, resp.PrincipalName = principalTypeUser, anonymous
	resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName = principalTypeUser, anonymous
	if req.OwnerPrincipalName != nil && *req.OwnerPrincipalName != "" && req.OwnerPrincipalType != nil {
		resp.PrincipalType, resp.PrincipalName = *req.OwnerPrincipalType, *req.OwnerPrincipalName
	}
	resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = -1, -1, -1
	resp.HMAC = []byte{}
	return answer(resp)
}
