package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// UnregisterBroker (64), version 0.
//
// Behavior
//   - Forgets a broker that is gone: BROKER_ID_NOT_REGISTERED for one that is not known. ErrorMessage is "" on success.
//
// Where we differ: the broker that is asked is not unregistered, INVALID_REQUEST. Kafka's goes on without a registration then, and serves nobody
// until it is started again.

func (s *Server) handleUnregisterBroker(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.Unregister(ctx, r.body.(*kmsg.UnregisterBrokerRequest)))
}
