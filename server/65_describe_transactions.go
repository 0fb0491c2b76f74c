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
	ids, places := distinct(req.TransactionalIDs)
	rows := make([]kmsg.DescribeTransactionsResponseTransactionState, len(ids))
	waits := make([]coordinator.Pending, len(ids))
	waiting := false
	for i, id := range ids {
		row := &rows[i]
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
	finish := func() kmsg.Response {
		again, told := newRepeats(), 0 // of rows
		for _, place := range places {
			row := rows[place]
			if place < told && !again.take(sizeOfTransaction(&row)) {
				row = kmsg.DescribeTransactionsResponseTransactionState{TransactionalID: row.TransactionalID, ErrorCode: errorCode(errRepeats)}
			}
			told = max(told, place+1)
			resp.TransactionStates = append(resp.TransactionStates, row)
		}
		return resp
	}
	if !waiting {
		return answer(finish())
	}
	return await(func(ctx context.Context) kmsg.Response {
		for i, p := range waits {
			if p == (coordinator.Pending{}) {
				continue
			}
			row := &rows[i]
			v, err := p.Await(ctx)
			if err != nil {
				row.ErrorCode = s.codeOf(err)
				continue
			}
			*row = v.(kmsg.DescribeTransactionsResponseTransactionState)
		}
		return finish()
	})
}
