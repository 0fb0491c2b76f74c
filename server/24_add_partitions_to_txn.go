package server

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/txncoordinator"
)

// AddPartitionsToTxn (24), versions 0 to 5.
//
// Behavior
//   - The coordinator notes which partitions the transaction will write to, and begins one with the first of them.
//   - If any partition can't be added (TOPIC_AUTHORIZATION_FAILED for internal topics, UNKNOWN_TOPIC_OR_PARTITION) none
//     is, and the others get OPERATION_NOT_ATTEMPTED.
//   - What the coordinator says goes for all partitions of a transaction. A request without partitions has no rows, but
//     begins a transaction all the same.
//
// Version notes: up to v3 a client asks for one transaction; v2 knows PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before); v3 is
// flexible. From v4 on brokers ask for many (KIP-890), to add or only to verify that partitions are there; an absent one
// is TRANSACTION_ABORTABLE. Their adds count as the client's of transaction version 2.
//
// Where we differ: Kafka answers CONCURRENT_TRANSACTIONS to an add that meets a transaction whose markers are being
// written. Here it waits a moment for the end of that.

func (s *Server) handleAddPartitionsToTxn(r *request) pending {
	req := r.body.(*kmsg.AddPartitionsToTxnRequest)
	if req.Version < 4 {
		return s.addPartitionsOfClient(req)
	}
	return s.addPartitionsOfBroker(req)
}

// txnTopics is the topics of a request, in whichever of its two shapes.
type txnTopics []kmsg.AddPartitionsToTxnRequestTransactionTopic

// set gives them as the coordinator keeps them.
func (ts txnTopics) set() txncoordinator.Partitions {
	return txncoordinator.PartitionsOf(func(yield func(topic string, partition int32)) {
		for _, t := range ts {
			for _, p := range t.Partitions {
				yield(t.Topic, p)
			}
		}
	})
}

// rows answers each partition with what code says of it.
func (ts txnTopics) rows(code func(topic string, partition int32) int16) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	rows := make([]kmsg.AddPartitionsToTxnResponseTransactionTopic, len(ts))
	for i, t := range ts {
		rows[i].Topic = t.Topic
		rows[i].Partitions = make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			rows[i].Partitions[j].Partition, rows[i].Partitions[j].ErrorCode = p, code(t.Topic, p)
		}
	}
	return rows
}

// refused tells of a partition why it can't be added by itself, 0 if it can.
func refusedInTxn(im *cluster.Image, client bool, topic string, partition int32) int16 {
	t := im.Topic(topic)
	switch {
	case client && cluster.IsInternal(topic):
		return kerr.TopicAuthorizationFailed.Code
	case t == nil || partition < 0 || int(partition) >= len(t.Partitions):
		return kerr.UnknownTopicOrPartition.Code
	}
	return 0
}

// refusals answers a transaction that names a partition that can't be added, each partition once; nil if there is none.
func (ts txnTopics) refusals(im *cluster.Image, client bool) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	if !slices.ContainsFunc(ts, func(t kmsg.AddPartitionsToTxnRequestTransactionTopic) bool {
		return slices.ContainsFunc(t.Partitions, func(p int32) bool { return refusedInTxn(im, client, t.Topic, p) != 0 })
	}) {
		return nil
	}
	return ts.merged(func(topic string, partition int32) int16 {
		if code := refusedInTxn(im, client, topic, partition); code != 0 {
			return code
		}
		return kerr.OperationNotAttempted.Code
	})
}

// merged is rows with each partition once, and no topic without any.
func (ts txnTopics) merged(code func(topic string, partition int32) int16) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	var rows []kmsg.AddPartitionsToTxnResponseTransactionTopic
	var places topicRows
	named := make(map[txnPartition]bool)
	for _, t := range ts {
		for _, p := range t.Partitions {
			if named[txnPartition{t.Topic, p}] {
				continue
			}
			named[txnPartition{t.Topic, p}] = true
			at, found := places.place(t.Topic, [16]byte{}, len(rows))
			if !found {
				rows = append(rows, kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: t.Topic})
			}
			rows[at].Partitions = append(rows[at].Partitions,
				kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p, ErrorCode: code(t.Topic, p)})
		}
	}
	return rows
}

func (s *Server) addPartitionsOfClient(req *kmsg.AddPartitionsToTxnRequest) pending {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	topics := make(txnTopics, len(req.Topics))
	for i, t := range req.Topics {
		topics[i].Topic, topics[i].Partitions = t.Topic, t.Partitions
	}
	finish := func(rows []kmsg.AddPartitionsToTxnResponseTransactionTopic) kmsg.Response {
		for _, t := range rows {
			row := kmsg.NewAddPartitionsToTxnResponseTopic()
			row.Topic = t.Topic
			for _, p := range t.Partitions {
				row.Partitions = append(row.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p.Partition, ErrorCode: p.ErrorCode})
			}
			resp.Topics = append(resp.Topics, row)
		}
		return resp
	}
	if rows := topics.refusals(s.image(), true); rows != nil {
		return answer(finish(rows))
	}
	all := func(code int16) kmsg.Response {
		return finish(topics.rows(func(string, int32) int16 { return code }))
	}
	p, err := s.addInTxn(txncoordinator.AddPartitions{
		TransactionalID: req.TransactionalID,
		Producer:        txncoordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Partitions:      topics.set(),
		Wait:            completionWait,
	})
	if err != nil {
		return answer(all(s.codeOf(err)))
	}
	return awaitCoordinated(p, func(_ any, err error) kmsg.Response {
		return all(fencedCode(s.codeOf(err), req.Version, 2))
	})
}

// addInTxn gives an add to the coordinator, which must be here.
func (s *Server) addInTxn(op txncoordinator.AddPartitions) (coordinator.Pending, error) {
	if op.TransactionalID == "" {
		return coordinator.Pending{}, kerr.InvalidRequest
	}
	shard, err := s.txnShard(op.TransactionalID)
	if err != nil {
		return coordinator.Pending{}, err
	}
	return shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.AddPartitions(now, to, op)
	}), nil
}

// verifyInTxn gives a verification to the coordinator, which must be here.
func (s *Server) verifyInTxn(op txncoordinator.Verify) (coordinator.Pending, error) {
	if op.TransactionalID == "" {
		return coordinator.Pending{}, kerr.InvalidRequest
	}
	shard, err := s.txnShard(op.TransactionalID)
	if err != nil {
		return coordinator.Pending{}, err
	}
	return shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.Verify(now, to, op)
	}), nil
}

func (s *Server) addPartitionsOfBroker(req *kmsg.AddPartitionsToTxnRequest) pending {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	im := s.image()
	waits := make([]coordinator.Pending, len(req.Transactions))
	waiting := false
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	for i, t := range req.Transactions {
		row, topics := &resp.Transactions[i], txnTopics(t.Topics)
		row.TransactionalID = t.TransactionalID
		if row.Topics = topics.refusals(im, false); row.Topics != nil {
			continue
		}
		producer := txncoordinator.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}
		var err error
		if t.VerifyOnly {
			waits[i], err = s.verifyInTxn(txncoordinator.Verify{
				TransactionalID: t.TransactionalID, Producer: producer, Partitions: topics.set()})
		} else {
			waits[i], err = s.addInTxn(txncoordinator.AddPartitions{
				TransactionalID: t.TransactionalID, Producer: producer, Partitions: topics.set(), ClientVersion: 2, Wait: completionWait})
		}
		if err != nil {
			row.Topics = answerInTxn(&t, s.txnCode(nil, err))
			continue
		}
		waiting = true
	}
	if !waiting {
		return answer(resp)
	}
	return await(func(ctx context.Context) kmsg.Response {
		for i, p := range waits {
			if p == (coordinator.Pending{}) {
				continue
			}
			v, err := p.Await(ctx)
			resp.Transactions[i].Topics = answerInTxn(&req.Transactions[i], s.txnCode(v, err))
		}
		return resp
	})
}

// answerInTxn answers the partitions of a transaction as they were asked for, and each once if they were verified only, as in Kafka.
func answerInTxn(t *kmsg.AddPartitionsToTxnRequestTransaction, code func(topic string, partition int32) int16) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	if t.VerifyOnly {
		return txnTopics(t.Topics).merged(code)
	}
	return txnTopics(t.Topics).rows(code)
}

// txnCode tells each partition's code from what the coordinator answered: an error for all of them, nil for all of them,
// or those that are absent.
func (s *Server) txnCode(v any, err error) func(topic string, partition int32) int16 {
	code := s.codeOf(err)
	absent, _ := v.(txncoordinator.Partitions)
	return func(topic string, partition int32) int16 {
		if code == 0 && absent.Has(topic, partition) {
			return kerr.TransactionAbortable.Code
		}
		return code
	}
}
