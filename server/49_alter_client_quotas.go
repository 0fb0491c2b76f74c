package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterClientQuotas (49), versions 0 and 1.
//
// Behavior
//   - Sets and removes limits of users, client ids, both together, and addresses; a null name is the default of its type. Each entity is
//     altered or refused by itself, as a whole.
//   - Limits are finite and above 0; rates of bytes and of connections are whole numbers.
//   - Removing what is not set, or not known, is no error. An entity that is named twice is answered once, with an error, though its
//     first entry holds; one that has a key twice is refused.
//   - An address may be a host name that can be resolved.
//   - Answers come in the order of the request; Kafka's order is that of a hash map.

func (s *Server) handleAlterClientQuotas(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.AlterClientQuotas(ctx, r.body.(*kmsg.AlterClientQuotasRequest)))
}
