package server

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/txncoordinator"
)

// EndTxn (26), versions 0 to 5.
//
// Behavior
//   - Commits or aborts. The decision stands once its record is committed; the markers follow from it.
//   - A repeated request is answered as the first one was, as long as nothing new began.
//
// Version notes: v2 knows PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before), v3 is flexible, v4 knows TRANSACTION_ABORTABLE. v5
// (KIP-890) raises the epoch with each transaction and answers with the producer id and epoch of the next one, a fresh
// id where the epochs ran out; an abort of nothing is no error there.
//
// Where we differ: Kafka answers once the decision is made. Here the answer waits a moment for the end of the
// transaction, so that the client's next one doesn't meet it.

func (s *Server) handleEndTxn(r *request) pending {
	req := r.body.(*kmsg.EndTxnRequest)
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	fail := func(err error) pending {
		resp.ErrorCode = s.codeOf(err)
		return answer(resp)
	}
	if req.TransactionalID == "" {
		return fail(kerr.InvalidRequest)
	}
	shard, err := s.txnShard(req.TransactionalID)
	if err != nil {
		return fail(err)
	}
	op := txncoordinator.EndTxn{
		TransactionalID: req.TransactionalID,
		Producer:        txncoordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Commit:          req.Commit,
		Wait:            completionWait,
	}
	if req.Version >= 5 {
		op.ClientVersion = 2
	}
	p := shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.EndTxn(now, to, op)
	})
	return awaitCoordinated(p, func(v any, err error) kmsg.Response {
		if err != nil {
			resp.ErrorCode = fencedCode(s.codeOf(err), req.Version, 2)
			return resp
		}
		producer := v.(txncoordinator.Producer)
		resp.ProducerID, resp.ProducerEpoch = producer.ID, producer.Epoch
		return resp
	})
}
