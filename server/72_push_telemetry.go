package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// PushTelemetry (72), version 0.
//
// Behavior
//   - Takes the metrics of a client, an OpenTelemetry message (KIP-714), and shows those that its subscription wants on the broker's own metrics
//     page, with what the client is as labels, until the client has been silent for three intervals. How many there can be is bounded.
//   - A reserved instance id is INVALID_REQUEST, and so is a push after one that said it was the last, once. A push before its time is
//     THROTTLING_QUOTA_EXCEEDED unless it is the last or the first after a subscription was asked for; of another subscription
//     UNKNOWN_SUBSCRIPTION_ID; with a codec that doesn't exist UNSUPPORTED_COMPRESSION_TYPE; of more than telemetry.max.bytes
//     TELEMETRY_TOO_LARGE. What cannot be decompressed is INVALID_RECORD; what is no OpenTelemetry message is taken, and shown nowhere.
//
// Where we differ: Kafka hands metrics to a plugin, and drops them if there is none. See also GetTelemetrySubscriptions.

func (s *Server) handlePushTelemetry(r *request) pending {
	req := r.body.(*kmsg.PushTelemetryRequest)
	resp := req.ResponseKind().(*kmsg.PushTelemetryResponse)
	if reservedID(req.ClientInstanceID) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return answer(resp)
	}
	resp.ErrorCode = errorCode(s.telemetry.push(s.image(), req, r.clientProperties, time.Now()))
	return answer(resp)
}

// reservedID tells whether an id is one of the hundred that Kafka keeps for itself.
func reservedID(id protocol.UUID) bool {
	last := id[15]
	id[15] = 0
	return id.IsZero() && last < 100
}
