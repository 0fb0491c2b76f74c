package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// The internal topics that coordinators live on.
const (
	offsetsTopic      = cluster.ConsumerOffsets
	transactionsTopic = cluster.TransactionState
)

// isCoordinated tells whether a coordinator of this node owns the partitions of a topic: nobody else writes to them.
func isCoordinated(topic string) bool { return topic == offsetsTopic || topic == transactionsTopic }

// internalPartitions is the number of partitions of an internal topic: what it has, or what it will get.
func (s *Server) internalPartitions(topic string) int32 {
	if t := s.image().Topic(topic); t != nil {
		return int32(len(t.Partitions))
	}
	return s.internalTopic(topic).NumPartitions
}

// internalTopic is the request to create an internal topic as this broker's configuration wants it. As long as the user has
// not set the replication factor and the in-sync minimum, they are not more than there are brokers.
func (s *Server) internalTopic(topic string) kmsg.CreateTopicsRequestTopic {
	cfg := s.cfg()
	brokers := 0
	for _, b := range s.image().Brokers() {
		if !b.Fenced {
			brokers++
		}
	}
	atMost := func(key string, limit int) int {
		if n := int(cfg.Int(key)); cfg.IsSet(key) || n < limit {
			return n
		}
		return max(limit, 1)
	}
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic = topic
	config := func(key, value string) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		t.Configs = append(t.Configs, c)
	}
	config("cleanup.policy", "compact")
	switch topic {
	case offsetsTopic:
		t.NumPartitions = int32(cfg.Int("offsets.topic.num.partitions"))
		t.ReplicationFactor = int16(atMost("offsets.topic.replication.factor", brokers))
		config("compression.type", "producer")
		config("segment.bytes", strconv.FormatInt(cfg.Int("offsets.topic.segment.bytes"), 10))
	case transactionsTopic:
		factor := atMost("transaction.state.log.replication.factor", brokers)
		t.NumPartitions = int32(cfg.Int("transaction.state.log.num.partitions"))
		t.ReplicationFactor = int16(factor)
		config("compression.type", "uncompressed")
		config("unclean.leader.election.enable", "false")
		config("min.insync.replicas", strconv.Itoa(atMost("transaction.state.log.min.isr", factor)))
		config("segment.bytes", strconv.FormatInt(cfg.Int("transaction.state.log.segment.bytes"), 10))
	}
	return t
}

// ensureInternalTopic creates an internal topic unless it exists, and waits until this node knows of it.
func (s *Server) ensureInternalTopic(ctx context.Context, topic string) (*cluster.Topic, error) {
	if t := s.image().Topic(topic); t != nil {
		return t, nil
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.Topics = append(req.Topics, s.internalTopic(topic))
	req.TimeoutMillis = int32(coordinatorWait.Milliseconds())
	resp := s.ctrl.CreateTopics(ctx, req)
	for _, row := range resp.Topics {
		if row.ErrorCode == kerr.RequestTimedOut.Code && ctx.Err() != nil {
			return nil, ctx.Err() // nothing is wrong with the topic: who asked for it has gone, or has waited long enough
		}
		err := kerr.ErrorForCode(row.ErrorCode)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			continue
		}
		text := ""
		if row.ErrorMessage != nil {
			text = *row.ErrorMessage
		}
		s.log.Warn("internal topic can't be created", "topic", topic, "error", err, "message", text)
		return nil, fmt.Errorf("topic %s: %s: %w", topic, text, err)
	}
	for {
		changed := s.ctrl.Changed()
		if t := s.image().Topic(topic); t != nil {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
