package server

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// FindCoordinator (10), versions 0 to 6.
//
// Behavior
//   - The coordinator of a group or a transactional id is the leader of the partition of __consumer_offsets or
//     __transaction_state that the id hashes to. Any string is an id, the empty one too.
//   - The topic is created by the first request that needs it.
//   - Errors have no node: id -1, host "", port -1. There is no coordinator as long as the partition has no leader.
//
// Version notes: v1 adds the key's type and the error message, which is NONE on success. v3 is flexible. v4 asks for
// many keys at once, each with its own answer, whose message is "" but for a type that doesn't exist. v6 knows share
// groups (type 2, group:topic id:partition); before it the type is INVALID_REQUEST.
//
// Where we differ: Kafka answers COORDINATOR_NOT_AVAILABLE while it creates the topic, and 0 some time before the
// coordinator takes requests. Here the answer waits a moment for both.

// coordinatorWait bounds how long FindCoordinator waits until a topic exists, and then for its partition to be loaded.
const coordinatorWait = 3 * time.Second

// The types of keys.
const (
	groupKey = iota
	transactionKey
	shareKey
)

func (s *Server) handleFindCoordinator(r *request) pending {
	req := r.body.(*kmsg.FindCoordinatorRequest)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	if s.coordinatorsReady(req.CoordinatorType, keys) {
		return answer(s.findCoordinators(r, req, keys))
	}
	return await(func(ctx context.Context) kmsg.Response {
		s.prepareCoordinators(ctx, req.CoordinatorType, keys)
		return s.findCoordinators(r, req, keys)
	})
}

// coordinatorTopic is the topic whose partitions coordinate keys of a type, "" if none does here.
func coordinatorTopic(keyType int8) string {
	switch keyType {
	case groupKey:
		return offsetsTopic
	case transactionKey:
		return transactionsTopic
	}
	return ""
}

// coordinatorsReady tells whether the coordinators of all keys can be told, and those on this node take requests.
func (s *Server) coordinatorsReady(keyType int8, keys []string) bool {
	topic := coordinatorTopic(keyType)
	if topic == "" || len(keys) == 0 {
		return true
	}
	t := s.image().Topic(topic)
	if t == nil {
		return false
	}
	for _, key := range keys {
		p := protocol.CoordinatorPartition(key, int32(len(t.Partitions)))
		if t.Partitions[p].Leader == s.nodeID && !s.coordinates(topic, p) {
			return false
		}
	}
	return true
}

// prepareCoordinators creates the topic if it is missing, and waits a bounded time for the partitions led here.
func (s *Server) prepareCoordinators(ctx context.Context, keyType int8, keys []string) {
	ctx, cancel := context.WithTimeout(ctx, coordinatorWait)
	defer cancel()
	topic := coordinatorTopic(keyType)
	t, err := s.ensureInternalTopic(ctx, topic)
	if err != nil {
		return // whoever asks is told that there is no coordinator, and asks again
	}
	for _, key := range keys {
		p := protocol.CoordinatorPartition(key, int32(len(t.Partitions)))
		if t.Partitions[p].Leader == s.nodeID && s.awaitCoordinator(ctx, topic, p) != nil {
			return
		}
	}
}

func (s *Server) findCoordinators(r *request, req *kmsg.FindCoordinatorRequest, keys []string) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	for _, key := range keys {
		row := s.findCoordinator(r, req, key)
		if req.Version >= 4 {
			resp.Coordinators = append(resp.Coordinators, row)
			continue
		}
		resp.NodeID, resp.Host, resp.Port = row.NodeID, row.Host, row.Port
		resp.ErrorCode, resp.ErrorMessage = row.ErrorCode, new(coordinatorText(row.ErrorCode))
	}
	return resp
}

// findCoordinator answers for one key.
func (s *Server) findCoordinator(r *request, req *kmsg.FindCoordinatorRequest, key string) kmsg.FindCoordinatorResponseCoordinator {
	row := kmsg.NewFindCoordinatorResponseCoordinator()
	row.Key, row.NodeID, row.Host, row.Port = key, -1, "", -1
	row.ErrorMessage = new("")
	fail := func(err *kerr.Error) kmsg.FindCoordinatorResponseCoordinator {
		row.ErrorCode = err.Code
		return row
	}
	switch req.CoordinatorType {
	case groupKey, transactionKey:
	case shareKey:
		if req.Version < 6 || !validShareKey(key) {
			return fail(kerr.InvalidRequest)
		}
		return fail(kerr.CoordinatorNotAvailable)
	default:
		row.ErrorMessage = new(coordinatorText(kerr.InvalidRequest.Code))
		return fail(kerr.InvalidRequest)
	}
	im := s.image()
	t := im.Topic(coordinatorTopic(req.CoordinatorType))
	if t == nil {
		return fail(kerr.CoordinatorNotAvailable)
	}
	b := im.Broker(t.Partitions[protocol.CoordinatorPartition(key, int32(len(t.Partitions)))].Leader)
	if b == nil || b.Fenced {
		return fail(kerr.CoordinatorNotAvailable)
	}
	host, port := s.endpoint(r, b)
	if host == "" {
		return fail(kerr.CoordinatorNotAvailable)
	}
	row.NodeID, row.Host, row.Port = b.ID, host, port
	return row
}

// coordinatorText is how Kafka words the errors of this API to clients before v4.
func coordinatorText(code int16) string {
	switch code {
	case 0:
		return "NONE"
	case kerr.CoordinatorNotAvailable.Code:
		return "The coordinator is not available."
	}
	return "This most likely occurs because of a request being malformed by the client library or the message was sent to an " +
		"incompatible broker. See the broker logs for more details."
}

// validShareKey tells whether a key is group:topic id:partition.
func validShareKey(key string) bool {
	parts := strings.Split(key, ":")
	if len(parts) != 3 || parts[0] == "" {
		return false
	}
	if id, err := base64.RawURLEncoding.DecodeString(parts[1]); err != nil || len(id) != 16 {
		return false
	}
	_, err := strconv.ParseInt(parts[2], 10, 32)
	return err == nil
}
