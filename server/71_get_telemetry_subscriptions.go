package server

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
	"oncelog/protocol"
)

// GetTelemetrySubscriptions (71), version 0.
//
// Behavior
//   - Tells a client which metrics to push, how often, and by which id of its subscription (KIP-714). A client without an instance id gets one.
//   - What is wanted is what all client metrics resources want that select the client; "*" makes all else needless. The shortest interval
//     counts, 5 minutes without any.
//   - A client that asks again before its interval is over is THROTTLING_QUOTA_EXCEEDED, unless the subscriptions have changed, or its last push
//     was refused for its subscription or its codec.
//   - It is no part of ApiVersions but while there is a client metrics resource that wants metrics. Kafka lists it when a receiver of
//     client metrics is configured; here the broker's own metrics page is the receiver.
//
// Where we differ: it is listed without a receiver that one has to configure. See also PushTelemetry.

func (s *Server) handleGetTelemetrySubscriptions(r *request) pending {
	req := r.body.(*kmsg.GetTelemetrySubscriptionsRequest)
	resp := req.ResponseKind().(*kmsg.GetTelemetrySubscriptionsResponse)
	id := protocol.UUID(req.ClientInstanceID)
	if id.IsZero() {
		id = protocol.NewUUID()
	}
	c, err := s.telemetry.get(s.image(), id, r.clientProperties, time.Now())
	if err != nil {
		resp.ErrorCode = errorCode(err)
		return answer(resp)
	}
	resp.ClientInstanceID, resp.SubscriptionID = c.id, c.subscriptionID
	resp.AcceptedCompressionTypes = telemetryCodecs
	resp.PushIntervalMillis, resp.TelemetryMaxBytes = int32(c.interval.Milliseconds()), int32(s.telemetry.maxBytes)
	resp.DeltaTemporality, resp.RequestedMetrics = true, c.wanted
	return answer(resp)
}

// clientProperties are what is known of the client that sent r, by the names by which client metrics resources select clients.
func (r *request) clientProperties() map[string]string {
	p := map[string]string{config.ClientSoftwareName: "unknown", config.ClientSoftwareVersion: "unknown"}
	if r.header.HasClientID {
		p[config.ClientID] = r.header.ClientID
	}
	if r.conn == nil {
		return p
	}
	if software := r.conn.software; software != nil {
		p[config.ClientSoftwareName], p[config.ClientSoftwareVersion] = software.name, software.version
	}
	host, port := splitAddr(r.conn.socket.RemoteAddr())
	p[config.ClientSourceAddress], p[config.ClientSourcePort] = host, strconv.Itoa(int(port))
	return p
}
