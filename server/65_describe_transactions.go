package server

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/txncoordinator"
)

// DescribeTransactions (65), version 0 (KIP-664).
//
// Behavior
//   - One row per transactional id of the request, in its order, however often it is named.
//   - A decided transaction shows the partitions that still lack their marker.
//   - A row with an error has no values: state "", producer id 0, and so on.

func (s *Server) handleDescribeTransactions(r *request) pending {
	req := r.body.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	waits := make([]coordinator.Pending, len(req.TransactionalIDs))
	resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, len(req.TransactionalIDs))
	waiting := false
	for i, id := range req.TransactionalIDs {
		row := &resp.TransactionStates[i]
		row.TransactionalID = id
		shard, err := s.txnShard(id)
		if id == "" {
			err = kerr.InvalidRequest
		}
		if err != nil {
			row.ErrorCode = s.codeOf(err)
			continue
		}
		waiting = true
		waits[i] = shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.Describe(now, to, id)
		})
	}
	if !waiting {
		return answer(resp)
	}
	return await(func(ctx context.Context) kmsg.Response {
		for i, p := range waits {
			if p == (coordinator.Pending{}) {
				continue
			}
			row := &resp.TransactionStates[i]
			v, err := p.Await(ctx)
			if err != nil {
				row.ErrorCode = s.codeOf(err)
				continue
			}
			*row = v.(kmsg.DescribeTransactionsResponseTransactionState)
		}
		return resp
	})
}
