package server

import (
	"context"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/txncoordinator"
)

// ListTransactions (66), versions 0 to 2 (KIP-664).
//
// Behavior
//   - The transactional ids that this broker coordinates, as the filters select them; COORDINATOR_LOAD_IN_PROGRESS while
//     any partition of them is still loaded.
//   - Names of states that don't exist are told back and select nothing: if all are such, the answer is empty.
//
// Version notes: v1 adds the filter by duration (KIP-994), which an id that never began a transaction passes. v2 adds the
// pattern, RE2, that must match the whole id; null and "" match all.

func (s *Server) handleListTransactions(r *request) pending {
	req := r.body.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	filter, unknown, err := listFilter(req)
	if err != nil {
		resp.ErrorCode = kerr.InvalidRegularExpression.Code
		return answer(resp)
	}
	shards, more := s.txns.Shards()
	if more {
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return answer(resp)
	}
	resp.UnknownStateFilters = unknown
	waits := make([]coordinator.Pending, len(shards))
	for i, shard := range shards {
		waits[i] = shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.List(now, to, filter)
		})
	}
	return await(func(ctx context.Context) kmsg.Response {
		for _, p := range waits {
			if rows, err := p.Await(ctx); err == nil { // a partition that was lost in between is another broker's to tell
				resp.TransactionStates = append(resp.TransactionStates, rows.([]kmsg.ListTransactionsResponseTransactionState)...)
			}
		}
		return resp
	})
}

// listFilter reads the filters of a request, and tells which of its states don't exist.
func listFilter(req *kmsg.ListTransactionsRequest) (f txncoordinator.Filter, unknown []string, err error) {
	f.LongerThan = -1
	if req.Version >= 1 && req.DurationFilterMillis >= 0 {
		f.LongerThan = time.Duration(min(req.DurationFilterMillis, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
	}
	if len(req.StateFilters) > 0 {
		f.States = make(map[kmsg.TransactionState]bool)
		known := kmsg.TransactionStateStrings()
		told := make(map[string]bool)
	names:
		for _, name := range req.StateFilters {
			for state, k := range known {
				if k == name {
					f.States[kmsg.TransactionState(state)] = true
					continue names
				}
			}
			if !told[name] {
				told[name] = true
				unknown = append(unknown, name)
			}
		}
	}
	if len(req.ProducerIDFilters) > 0 {
		f.ProducerIDs = make(map[int64]bool)
		for _, id := range req.ProducerIDFilters {
			f.ProducerIDs[id] = true
		}
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		if _, err := regexp.Compile(*req.TransactionalIDPattern); err != nil {
			return f, nil, err
		}
		f.ID = regexp.MustCompile(`\A(?:` + *req.TransactionalIDPattern + `)\z`).MatchString
	}
	return f, unknown, nil
}
