package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RenewDelegationToken (39), versions 1 and 2.
//
// Behavior
//   - As for CreateDelegationToken: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where nobody authenticates.

func (s *Server) handleRenewDelegationToken(r *request) pending {
	resp := r.body.ResponseKind().(*kmsg.RenewDelegationTokenResponse)
	resp.ErrorCode, resp.ExpiryTimestamp = kerr.DelegationTokenRequestNotAllowed.Code, -1
	return answer(resp)
}
