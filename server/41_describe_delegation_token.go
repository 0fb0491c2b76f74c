package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeDelegationToken (41), versions 1 to 3.
//
// Behavior
//   - As for CreateDelegationToken: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED where nobody authenticates, whoever's tokens are asked for.

func (s *Server) handleDescribeDelegationToken(r *request) pending {
	resp := r.body.ResponseKind().(*kmsg.DescribeDelegationTokenResponse)
	resp.ErrorCode = kerr.DelegationTokenRequestNotAllowed.Code
	return answer(resp)
}
