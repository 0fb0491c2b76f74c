package server

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/protocol"
)

// Metadata (3), versions 0 to 13.
//
// Behavior
//   - Lists the brokers that are alive and have the listener that the request came in on, each with its endpoint there, and the topics asked for:
//     all of them, ascending by name, if none is named (null; in version 0 the empty list).
//   - Topics that exist come first, in the order of the request and each once. Then come those that don't: UNKNOWN_TOPIC_OR_PARTITION, or
//     INVALID_TOPIC_EXCEPTION for what cannot be a name.
//   - A named topic that does not exist is created, if both auto.create.topics.enable and the client allow it: with the broker's defaults, or
//     as the coordinators want it if it is one of theirs. It is UNKNOWN_TOPIC_OR_PARTITION until a later request finds it.
//   - Topics may be asked for by id instead. One id in the request, and only the ids count; unknown ones come first, as UNKNOWN_TOPIC_ID.
//   - A partition whose leader is not alive is LEADER_NOT_AVAILABLE, with leader -1.
//   - Without an authorizer everybody may do everything that can be done to a topic or to the cluster.
//
// Version notes
//   - 0: replicas that are not alive are left out, which makes the partition REPLICA_NOT_AVAILABLE.
//   - 4: the client says whether topics may be created; before, it always wants that.
//   - 6: a leader that is alive but has no such listener is LISTENER_NOT_FOUND instead.
//   - 10, 11: have topic ids, but must not use them: INVALID_REQUEST for the whole request.
//   - 12: ids work; the name of an unknown id is null.
//   - 13: an error of its own for the request as a whole.
//
// Where we differ: a topic with neither name nor id is UNKNOWN_SERVER_ERROR in Kafka from version 12 on, here INVALID_REQUEST as before.

const (
	// autoCreateWait bounds the creation of the topics that one request names.
	autoCreateWait = 3 * time.Second
	// autoCreations bounds the requests whose topics are being created. Those beyond find none, and the client asks again.
	autoCreations = 16
)

func (s *Server) handleMetadata(r *request) pending {
	req := r.body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	if !validMetadata(req) {
		return answer(refuseMetadata(req, resp))
	}
	names := metadataNames(req)
	m := metadataAnswer{s: s, r: r, req: req, resp: resp, im: s.image()}
	if missing := s.creatable(m.im, req, names); len(missing) > 0 {
		s.autoCreate(missing)
	}
	m.brokers()
	switch {
	case metadataByID(req):
		m.topicsByID()
	case allTopics(req):
		for t := range m.im.Topics() {
			m.topic(t)
		}
	default:
		m.topicsByName(names)
	}
	return answer(resp)
}

// allTopics tells whether a request asks for every topic.
func allTopics(req *kmsg.MetadataRequest) bool {
	return req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
}

func metadataByID(req *kmsg.MetadataRequest) bool {
	return slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != [16]byte{} })
}

func validMetadata(req *kmsg.MetadataRequest) bool {
	if req.Version < 12 && metadataByID(req) {
		return false
	}
	return !slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
		return t.Topic == nil && t.TopicID == [16]byte{}
	})
}

// refuseMetadata answers each topic with INVALID_REQUEST and tells nothing else.
func refuseMetadata(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) kmsg.Response {
	resp.ControllerID = -1
	resp.ErrorCode = kerr.InvalidRequest.Code
	for _, t := range req.Topics {
		row := kmsg.NewMetadataResponseTopic()
		row.Topic, row.TopicID, row.ErrorCode = t.Topic, t.TopicID, kerr.InvalidRequest.Code
		if row.Topic == nil {
			row.Topic = new("")
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// metadataNames are the names that a request asks for, each once, in its order.
func metadataNames(req *kmsg.MetadataRequest) []string {
	if metadataByID(req) {
		return nil
	}
	names := make([]string, 0, len(req.Topics))
	seen := make(map[string]bool, len(req.Topics))
	for _, t := range req.Topics {
		if !seen[*t.Topic] {
			seen[*t.Topic] = true
			names = append(names, *t.Topic)
		}
	}
	return names
}

// creatable are those of the names that shall be created now.
func (s *Server) creatable(im *cluster.Image, req *kmsg.MetadataRequest, names []string) []string {
	if req.Version >= 4 && !req.AllowAutoTopicCreation || !s.cfg().Bool("auto.create.topics.enable") {
		return nil
	}
	var missing []string
	for _, name := range names {
		if im.Topic(name) == nil && protocol.CheckTopicName(name) == nil && (!cluster.IsInternal(name) || isCoordinated(name)) {
			missing = append(missing, name)
		}
	}
	return missing
}

// autoCreate has topics created, behind the answer.
func (s *Server) autoCreate(names []string) {
	select {
	case s.creating <- struct{}{}:
	default:
		return
	}
	s.running.Go(func() {
		s.createNamed(names)
		<-s.creating
	})
}

func (s *Server) createNamed(names []string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(4) // answers without configs
	req.TimeoutMillis = int32(autoCreateWait.Milliseconds())
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
		if isCoordinated(name) {
			t = s.internalTopic(name)
		}
		req.Topics = append(req.Topics, t)
	}
	ctx, cancel := context.WithTimeout(s.ctx, autoCreateWait)
	defer cancel()
	for _, t := range s.ctrl.CreateTopics(ctx, req).Topics {
		if t.ErrorCode == 0 || t.ErrorCode == kerr.TopicAlreadyExists.Code {
			continue
		}
		reason := kerr.ErrorForCode(t.ErrorCode).Error()
		if t.ErrorMessage != nil {
			reason = *t.ErrorMessage
		}
		s.log.Info("topic was not created automatically", slog.String("topic", t.Topic), slog.String("reason", reason))
	}
}

// metadataAnswer fills one response from one image.
type metadataAnswer struct {
	s    *Server
	r    *request
	req  *kmsg.MetadataRequest
	resp *kmsg.MetadataResponse
	im   *cluster.Image

	// reachable has the brokers that the client can be sent to.
	reachable map[int32]bool
}

func (m *metadataAnswer) brokers() {
	m.resp.ControllerID = -1
	m.resp.ClusterID = &m.im.ClusterID
	m.reachable = make(map[int32]bool)
	for _, b := range m.im.Brokers() {
		if b.Fenced {
			continue
		}
		host, port := m.s.endpoint(m.r, b)
		if host == "" {
			continue
		}
		m.reachable[b.ID] = true
		row := kmsg.NewMetadataResponseBroker()
		row.NodeID, row.Host, row.Port, row.Rack = b.ID, host, port, b.Rack
		m.resp.Brokers = append(m.resp.Brokers, row)
	}
	if m.reachable[m.im.ControllerID] {
		m.resp.ControllerID = m.im.ControllerID
	}
	if m.req.IncludeClusterAuthorizedOperations {
		m.resp.AuthorizedOperations = clusterOperations
	}
}

func (m *metadataAnswer) topicsByName(names []string) {
	for _, name := range names {
		if t := m.im.Topic(name); t != nil {
			m.topic(t)
		}
	}
	for _, name := range names {
		if m.im.Topic(name) != nil {
			continue
		}
		row := m.row(name)
		row.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if protocol.CheckTopicName(name) != nil {
			row.ErrorCode = kerr.InvalidTopicException.Code
		}
		m.resp.Topics = append(m.resp.Topics, row)
	}
}

func (m *metadataAnswer) topicsByID() {
	seen := make(map[[16]byte]bool, len(m.req.Topics))
	var known []*cluster.Topic
	for _, t := range m.req.Topics {
		if seen[t.TopicID] || t.TopicID == [16]byte{} {
			continue
		}
		seen[t.TopicID] = true
		if topic := m.im.TopicByID(t.TopicID); topic != nil {
			known = append(known, topic)
			continue
		}
		row := kmsg.NewMetadataResponseTopic()
		row.TopicID, row.ErrorCode = t.TopicID, kerr.UnknownTopicID.Code
		m.resp.Topics = append(m.resp.Topics, row)
	}
	for _, t := range known {
		m.topic(t)
	}
}

// row is what all answers about a topic of that name have.
func (m *metadataAnswer) row(name string) kmsg.MetadataResponseTopic {
	row := kmsg.NewMetadataResponseTopic()
	row.Topic, row.IsInternal = &name, cluster.IsInternal(name)
	if m.req.IncludeTopicAuthorizedOperations {
		row.AuthorizedOperations = topicOperations
	}
	return row
}

func (m *metadataAnswer) topic(t *cluster.Topic) {
	row := m.row(t.Name)
	row.TopicID = t.ID
	row.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i := range t.Partitions {
		row.Partitions[i] = m.partition(int32(i), &t.Partitions[i])
	}
	m.resp.Topics = append(m.resp.Topics, row)
}

func (m *metadataAnswer) partition(index int32, p *cluster.Partition) kmsg.MetadataResponseTopicPartition {
	row := kmsg.NewMetadataResponseTopicPartition()
	row.Partition, row.Leader, row.LeaderEpoch = index, p.Leader, p.LeaderEpoch
	row.Replicas, row.ISR = p.Replicas, p.ISR
	if p.Leader < 0 {
		row.ISR = nil // who was in sync last is an eligible leader (KIP-966)
	}
	for _, id := range p.Replicas {
		if !m.reachable[id] || m.im.Offline(p, id) {
			row.OfflineReplicas = append(row.OfflineReplicas, id)
		}
	}
	if m.req.Version == 0 && len(row.OfflineReplicas) > 0 {
		gone := func(id int32) bool { return !m.reachable[id] }
		row.Replicas, row.ISR = slices.DeleteFunc(slices.Clone(p.Replicas), gone), slices.DeleteFunc(slices.Clone(p.ISR), gone)
		row.ErrorCode = kerr.ReplicaNotAvailable.Code
	}
	if !m.reachable[p.Leader] {
		row.Leader, row.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		if b := m.im.Broker(p.Leader); b != nil && !b.Fenced && m.req.Version >= 6 {
			row.ErrorCode = kerr.ListenerNotFound.Code
		}
	}
	return row
}
