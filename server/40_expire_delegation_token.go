package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ExpireDelegationToken (40), versions 1 and 2.
//
// Behavior
//   - As for CreateDelegationToken: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where nobody authenticates.

func (s *Server) handleExpireDelegationToken(r *request) pending {
	resp := r.body.ResponseKind().(*kmsg.ExpireDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = kerr.DelegationTokenRequestNotAllowed.Code, -1
	return answer(resp)
}
