package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/txncoordinator"
)

// InitProducerId (22), versions 0 to 5.
//
// Behavior
//   - Without a transactional id any broker gives a producer id that nobody had before, with epoch 0. All else in the
//     request is ignored, but for what must be a pair.
//   - With one its coordinator gives the same producer id with a higher epoch, which fences all before it; a fresh
//     producer id with epoch 0 if it is the first time, or the epochs ran out. An open transaction is aborted; the client is
//     told CONCURRENT_TRANSACTIONS and comes again.
//   - Producer id and epoch of the request (KIP-360) must both be given or neither. Given, they must be the current
//     ones, or those before, whose answer was lost and is repeated.
//
// Version notes: v2 is flexible, v3 adds producer id and epoch, v4 knows PRODUCER_FENCED (INVALID_PRODUCER_EPOCH
// before), v5 TRANSACTION_ABORTABLE.
//
// Where we differ: Kafka answers CONCURRENT_TRANSACTIONS to all that meets a transaction whose markers are being
// written. Here the request waits a moment for the end of that.

func (s *Server) handleInitProducerID(r *request) pending {
	req := r.body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	expected := txncoordinator.NoProducer
	if req.Version >= 3 {
		expected = txncoordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	}
	fail := func(err error) pending {
		resp.ErrorCode = s.codeOf(err)
		return answer(resp)
	}
	if (expected.ID == -1) != (expected.Epoch == -1) {
		return fail(kerr.InvalidRequest)
	}
	if req.TransactionalID == nil {
		return s.freshProducerID(resp)
	}
	id := *req.TransactionalID
	if id == "" {
		return fail(kerr.InvalidRequest)
	}
	if req.TransactionTimeoutMillis <= 0 || int64(req.TransactionTimeoutMillis) > s.cfg().Int("transaction.max.timeout.ms") {
		return fail(kerr.InvalidTransactionTimeout)
	}
	shard, err := s.txnShard(id)
	if err != nil {
		return fail(err)
	}
	op := txncoordinator.InitProducerID{
		TransactionalID: id, TimeoutMillis: req.TransactionTimeoutMillis, Expected: expected, Wait: completionWait,
	}
	p := shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.InitProducerID(now, to, op)
	})
	return awaitCoordinated(p, func(v any, err error) kmsg.Response {
		if err != nil {
			resp.ErrorCode = fencedCode(s.codeOf(err), req.Version, 4)
			return resp
		}
		producer := v.(txncoordinator.Producer)
		resp.ProducerID, resp.ProducerEpoch = producer.ID, producer.Epoch
		return resp
	})
}
