package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpdateFeatures (57), versions 0 to 2.
//
// Behavior
//   - Brings features to other levels: all of a request, or none (INVALID_UPDATE_VERSION for the whole). Going down must be asked for;
//     metadata.version never goes down. transaction.version has effect at once.
//   - The timeout has none.
//
// Version notes
//   - 0: a flag allows downgrades, with a result per feature. 1: kinds of upgrade, ValidateOnly (KIP-584).
//   - 2: no results per feature (KIP-1022).

func (s *Server) handleUpdateFeatures(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.UpdateFeatures(ctx, r.body.(*kmsg.UpdateFeaturesRequest)))
}
