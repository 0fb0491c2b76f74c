package server

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/protocol"
	"oncelog/txncoordinator"
)

// txnOp is what a transactional append asks of the transaction coordinator, by the version of its request (KIP-890).
type txnOp int8

const (
	// txnVerify asks whether the partitions are in the transaction: Produce up to v10, TxnOffsetCommit up to v3, whose
	// clients don't know TRANSACTION_ABORTABLE.
	txnVerify txnOp = iota
	// txnVerifyAbortable is the same for Produce v11 and TxnOffsetCommit v4.
	txnVerifyAbortable
	// txnAdd adds the partitions to the transaction: Produce from v12 and TxnOffsetCommit from v5 on.
	txnAdd
)

// txnPartition names a partition that a transaction is about to write to.
type txnPartition struct {
	topic     string
	partition int32
}

// txnCheck is the question of one transactional append to the coordinator of its transactional id.
type txnCheck struct {
	transactionalID string
	producerID      int64
	producerEpoch   int16
	partitions      []txnPartition
	op              txnOp
	// patient makes an add that meets a completing transaction wait for add.partitions.to.txn.retry.backoff.max.ms
	// before it is refused (Produce), else it waits only the moment that a completion takes (TxnOffsetCommit).
	patient bool
}

// checkTxn asks the transaction coordinator, here or on another broker, and gives one error per partition in their
// order, nil for those that may be appended to. The errors are as the partition's leader sees them: PRODUCER_FENCED has
// become INVALID_PRODUCER_EPOCH, an absent partition INVALID_TXN_STATE or TRANSACTION_ABORTABLE, a lost connection
// NETWORK_EXCEPTION. What of them goes to the client is verificationAnswer's to say for Produce.
func (s *Server) checkTxn(ctx context.Context, c txnCheck) []error {
	result := make([]error, len(c.partitions))
	set := txncoordinator.PartitionsOf(func(yield func(topic string, partition int32)) {
		for _, p := range c.partitions {
			yield(p.topic, p.partition)
		}
	})
	absent, err := s.askTxnCoordinator(ctx, c, set)
	for i, p := range c.partitions {
		switch {
		case err != nil:
			result[i] = err
		case absent.Has(p.topic, p.partition):
			result[i] = notInTxn(c.op)
		}
	}
	return result
}

// notInTxn is what a partition that isn't part of the transaction is refused with.
func notInTxn(op txnOp) error {
	if op == txnVerify {
		return kerr.InvalidTxnState
	}
	return kerr.TransactionAbortable
}

// askTxnCoordinator gives the partitions that are not part of the transaction, or what is wrong with all of them.
func (s *Server) askTxnCoordinator(ctx context.Context, c txnCheck, set txncoordinator.Partitions) (absent txncoordinator.Partitions, err error) {
	if c.transactionalID == "" {
		return nil, kerr.InvalidRequest
	}
	t := s.image().Topic(transactionsTopic)
	if t == nil {
		return nil, kerr.CoordinatorNotAvailable
	}
	index := protocol.CoordinatorPartition(c.transactionalID, int32(len(t.Partitions)))
	switch leader := t.Partitions[index].Leader; leader {
	case s.nodeID:
		absent, err = s.askLocalTxnCoordinator(ctx, c, index, set)
	case -1:
		return nil, kerr.CoordinatorNotAvailable
	default:
		absent, err = s.askRemoteTxnCoordinator(ctx, c, leader, set)
	}
	if errorCode(err) == kerr.ProducerFenced.Code {
		err = kerr.InvalidProducerEpoch // PRODUCER_FENCED is never the answer of a partition
	}
	return absent, err
}

func (s *Server) askLocalTxnCoordinator(ctx context.Context, c txnCheck, index int32, set txncoordinator.Partitions) (txncoordinator.Partitions, error) {
	shard, err := s.txns.Get(index)
	if err != nil {
		return nil, err
	}
	producer := txncoordinator.Producer{ID: c.producerID, Epoch: c.producerEpoch}
	wait := s.txnAddWait(c)
	v, err := shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		if c.op == txnAdd {
			return m.AddPartitions(now, to, txncoordinator.AddPartitions{
				TransactionalID: c.transactionalID, Producer: producer, Partitions: set, ClientVersion: 2, Wait: wait})
		}
		return m.Verify(now, to, txncoordinator.Verify{TransactionalID: c.transactionalID, Producer: producer, Partitions: set})
	}).Await(ctx)
	absent, _ := v.(txncoordinator.Partitions)
	return absent, err
}

// txnAddWait is how long an add waits for a completing transaction.
func (s *Server) txnAddWait(c txnCheck) time.Duration {
	if !c.patient {
		return completionWait
	}
	return min(time.Duration(s.cfg().Int("add.partitions.to.txn.retry.backoff.max.ms"))*time.Millisecond, s.requestTimeout())
}

// askRemoteTxnCoordinator asks another broker. An add that meets a completing transaction is repeated: that broker waits
// by itself only the moment that a completion takes.
func (s *Server) askRemoteTxnCoordinator(ctx context.Context, c txnCheck, broker int32, set txncoordinator.Partitions) (txncoordinator.Partitions, error) {
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout())
	defer cancel()
	pause := time.Duration(s.cfg().Int("add.partitions.to.txn.retry.backoff.ms")) * time.Millisecond
	deadline := time.Now().Add(s.txnAddWait(c))
	for {
		absent, err := s.askRemoteTxnCoordinatorOnce(ctx, c, broker, set)
		if errorCode(err) != kerr.ConcurrentTransactions.Code || c.op != txnAdd || !c.patient || !time.Now().Add(pause).Before(deadline) {
			return absent, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, kerr.NetworkException
		}
	}
}

func (s *Server) askRemoteTxnCoordinatorOnce(ctx context.Context, c txnCheck, broker int32, set txncoordinator.Partitions) (txncoordinator.Partitions, error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.SetVersion(5)
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = c.transactionalID, c.producerID, c.producerEpoch, c.op != txnAdd
	for _, topic := range set {
		t.Topics = append(t.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: topic.Name, Partitions: topic.Partitions})
	}
	req.Transactions = append(req.Transactions, t)
	got, err := s.peers.request(ctx, broker, req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kerr.NetworkException, err)
	}
	resp := got.(*kmsg.AddPartitionsToTxnResponse)
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("coordinator %d: %w: %w", broker, kerr.InvalidTxnState, kerr.ErrorForCode(resp.ErrorCode))
	}
	absent := make(map[txnPartition]bool)
	for _, t := range resp.Transactions {
		for _, topic := range t.Topics {
			for _, p := range topic.Partitions {
				switch p.ErrorCode {
				case 0:
				case kerr.TransactionAbortable.Code:
					absent[txnPartition{topic.Topic, p.Partition}] = true
				default:
					return nil, kerr.ErrorForCode(p.ErrorCode)
				}
			}
		}
	}
	return txncoordinator.PartitionsOf(func(yield func(topic string, partition int32)) {
		for p := range absent {
			yield(p.topic, p.partition)
		}
	}), nil
}

// verificationAnswer is the code and the message with which a Produce answers a partition that checkTxn refused.
func verificationAnswer(err error, op txnOp) (code int16, message *string) {
	code = errorCode(err)
	switch code {
	case kerr.NetworkException.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
	case kerr.ConcurrentTransactions.Code:
		if op == txnAdd {
			return code, nil
		}
	case kerr.InvalidTxnState.Code:
		return code, new("Partition was not added to the transaction")
	default:
		return code, nil
	}
	return kerr.NotEnoughReplicas.Code, new("Unable to verify the partition has been added to the transaction. Underlying error: " +
		kerr.ErrorForCode(code).(*kerr.Error).Message)
}
