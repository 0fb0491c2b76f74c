package server

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/partition"
)

// TxnOffsetCommit (28), versions 0 to 6.
//
// Behavior
//   - Stores offsets of a group within a transaction: seen when it commits, dropped when it aborts.
//   - The transaction comes first: the group's partition of __consumer_offsets must be in it. From v5 on it is added,
//     and stays so also if the commit is then refused.
//   - A sender that names no member may commit whatever state the group is in (KIP-447).
//   - Partitions that don't exist are refused by themselves, and come first in the answer.
//
// Version notes: v1 adds nothing, v2 the leader epoch, v3 member and generation (and is flexible), v4 knows
// TRANSACTION_ABORTABLE (INVALID_TXN_STATE before), v5 adds the partition (KIP-890), v6 has topic ids instead of names
// and says GROUP_ID_NOT_FOUND for what was ILLEGAL_GENERATION. A wrong epoch is INVALID_PRODUCER_EPOCH in all of them.

func (s *Server) handleTxnOffsetCommit(r *request) pending {
	req := r.body.(*kmsg.TxnOffsetCommitRequest)
	refused := splitTxnOffsetCommit(s.image(), req)
	if len(req.Topics) == 0 {
		return answer(refused.TxnOffsetCommitResponse)
	}
	finish := func(v any, err error) kmsg.Response {
		resp, _ := v.(*kmsg.TxnOffsetCommitResponse)
		if err != nil {
			resp = allTxnOffsetCommit(req, s.txnOffsetCommitCode(err, req.Version))
		}
		if len(refused.Topics) == 0 {
			return resp
		}
		for _, t := range resp.Topics {
			refused.add(t)
		}
		return refused.TxnOffsetCommitResponse
	}
	shard, err := s.namedGroupShard(req.Group)
	if errors.Is(err, kerr.NotCoordinator) && s.image().Topic(offsetsTopic) == nil {
		err = kerr.CoordinatorNotAvailable // as in Kafka, which looks for the partition before the group
	}
	if err != nil {
		return answer(finish(nil, err))
	}
	guard, err := s.verifyOffsets(req, shard.Partition)
	if err != nil {
		return answer(finish(nil, err))
	}
	p := shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.TxnOffsetCommit(now, to, req, guard)
	})
	return s.awaitGroupWrite(p, finish)
}

// verifyOffsets sees to it that a partition of the offsets topic is in the transaction, and gives the guard with which
// it may be written to. The connection waits for it: what it sends next must not overtake the commit.
func (s *Server) verifyOffsets(req *kmsg.TxnOffsetCommitRequest, index int32) (any, error) {
	p := s.replicas.Get(offsetsTopic, index)
	if p == nil {
		return nil, kerr.NotCoordinator
	}
	op := txnAdd
	switch {
	case req.Version <= 3:
		op = txnVerify
	case req.Version == 4:
		op = txnVerifyAbortable
	}
	if op != txnAdd && !s.cfg().Bool("transaction.partition.verification.enable") {
		return partition.Guard(0), nil
	}
	guard, needed, err := p.Verify(req.ProducerID, req.ProducerEpoch, -1, op == txnAdd, time.Now())
	if err != nil || !needed {
		return guard, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return guard, s.checkTxn(ctx, txnCheck{
		transactionalID: req.TransactionalID,
		producerID:      req.ProducerID,
		producerEpoch:   req.ProducerEpoch,
		partitions:      []txnPartition{{offsetsTopic, index}},
		op:              op,
	})[0]
}

// txnOffsetCommitCode is the code for what went wrong with a whole commit. What the client can only wait for is said in
// words that it knows.
func (s *Server) txnOffsetCommitCode(err error, version int16) int16 {
	code := s.groupCode(err)
	switch code {
	case kerr.NetworkException.Code:
		code = kerr.CoordinatorLoadInProgress.Code
	case kerr.UnknownTopicOrPartition.Code, kerr.NotEnoughReplicas.Code, kerr.RequestTimedOut.Code:
		code = kerr.CoordinatorNotAvailable.Code
	case kerr.NotLeaderForPartition.Code, kerr.KafkaStorageError.Code:
		code = kerr.NotCoordinator.Code
	case kerr.MessageTooLarge.Code:
		code = kerr.UnknownServerError.Code
	}
	if code == kerr.CoordinatorLoadInProgress.Code && version < 2 {
		return kerr.CoordinatorNotAvailable.Code
	}
	return code
}

// splitTxnOffsetCommit gives the answer to the partitions that don't exist, and leaves the others in req, each topic
// with its name and its id.
func splitTxnOffsetCommit(im *cluster.Image, req *kmsg.TxnOffsetCommitRequest) refusedTxnOffsetCommit {
	refused := refusedTxnOffsetCommit{req.ResponseKind().(*kmsg.TxnOffsetCommitResponse), topicRows{byID: req.Version >= 6}}
	keep := req.Topics[:0]
	for _, t := range req.Topics {
		topic, code := committable(im, refused.rows.byID, t.Topic, t.TopicID)
		row := kmsg.NewTxnOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		good := t.Partitions[:0]
		for _, p := range t.Partitions {
			if topic != nil && hasPartition(topic, p.Partition) {
				good = append(good, p)
				continue
			}
			if topic != nil {
				code = kerr.UnknownTopicOrPartition.Code
			}
			row.Partitions = append(row.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		if len(row.Partitions) > 0 || topic == nil {
			refused.add(row)
		}
		if len(good) > 0 {
			t.Topic, t.TopicID, t.Partitions = topic.Name, topic.ID, good
			keep = append(keep, t)
		}
	}
	req.Topics = keep
	return refused
}

// allTxnOffsetCommit answers all partitions with one code.
func allTxnOffsetCommit(req *kmsg.TxnOffsetCommitRequest, code int16) *kmsg.TxnOffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for _, t := range req.Topics {
		row := kmsg.NewTxnOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			row.Partitions = append(row.Partitions, kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// refusedTxnOffsetCommit is the answer to what has been refused so far, to which the rest is added.
type refusedTxnOffsetCommit struct {
	*kmsg.TxnOffsetCommitResponse
	rows topicRows
}

// add adds the row of a topic to the one that is there.
func (r *refusedTxnOffsetCommit) add(t kmsg.TxnOffsetCommitResponseTopic) {
	if at, found := r.rows.place(t.Topic, t.TopicID, len(r.Topics)); found {
		r.Topics[at].Partitions = append(r.Topics[at].Partitions, t.Partitions...)
	} else {
		r.Topics = append(r.Topics, t)
	}
}
