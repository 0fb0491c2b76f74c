package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SaslAuthenticate (36), versions 0 to 2.
//
// Behavior
//   - On a listener without SASL everybody is authenticated already: ILLEGAL_SASL_STATE. The connection goes on.

func (s *Server) handleSASLAuthenticate(r *request) pending {
	resp := r.body.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	resp.ErrorCode = kerr.IllegalSaslState.Code
	resp.ErrorMessage = new("SaslAuthenticate request received after successful authentication")
	resp.SASLAuthBytes = []byte{}
	return answer(resp)
}
