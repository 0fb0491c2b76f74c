package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SaslHandshake (17), versions 0 and 1.
//
// Behavior
//   - On a listener without SASL there is nothing to negotiate: ILLEGAL_SASL_STATE, whatever the mechanism. The connection goes on.

func (s *Server) handleSASLHandshake(r *request) pending {
	resp := r.body.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.ErrorCode = kerr.IllegalSaslState.Code
	return answer(resp)
}
