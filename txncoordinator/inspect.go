package txncoordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// sorted gives all ids, ascending.
func (m *Machine) sorted() []*txn {
	return slices.SortedFunc(maps.Values(m.txns), func(a, b *txn) int { return cmp.Compare(a.id, b.id) })
}

// Describe answers with the kmsg.DescribeTransactionsResponseTransactionState of one id.
func (m *Machine) Describe(now time.Time, to coordinator.Token, id string) coordinator.Output {
	t := m.txns[id]
	if t == nil {
		return to.Fail(kerr.TransactionalIDNotFound)
	}
	row := kmsg.NewDescribeTransactionsResponseTransactionState()
	row.TransactionalID = t.id
	row.State = t.state.String()
	row.TimeoutMillis = t.timeoutMillis
	row.StartTimestamp = t.startMillis
	row.ProducerID = t.producerID
	row.ProducerEpoch = t.epoch
	partitions := t.partitions
	if t.completing() {
		partitions = t.unmarked
	}
	for _, topic := range partitions {
		row.Topics = append(row.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{
			Topic: topic.Name, Partitions: slices.Clone(topic.Partitions),
		})
	}
	return to.Reply(row)
}

// Filter selects rows of List.
type Filter struct {
	States      map[kmsg.TransactionState]bool // nil: all
	ProducerIDs map[int64]bool                 // nil: all
	LongerThan  time.Duration                  // negative: no filter
	ID          func(id string) bool           // nil: all
}

// List answers with the []kmsg.ListTransactionsResponseTransactionState that f selects, ascending by id.
func (m *Machine) List(now time.Time, to coordinator.Token, f Filter) coordinator.Output {
	var rows []kmsg.ListTransactionsResponseTransactionState
	for _, t := range m.sorted() {
		if !f.selects(t, now) {
			continue
		}
		row := kmsg.NewListTransactionsResponseTransactionState()
		row.TransactionalID = t.id
		row.ProducerID = t.producerID
		row.TransactionState = t.state.String()
		rows = append(rows, row)
	}
	return to.Reply(rows)
}

func (f *Filter) selects(t *txn, now time.Time) bool {
	switch {
	case f.States != nil && !f.States[t.state]:
		return false
	case f.ProducerIDs != nil && !f.ProducerIDs[t.producerID]:
		return false
	case f.LongerThan >= 0 && now.UnixMilli()-t.startMillis <= f.LongerThan.Milliseconds():
		return false // one that never began has start -1, and so passes for old, as in Kafka
	case f.ID != nil && !f.ID(t.id):
		return false
	}
	return true
}

// Summary is what metrics tell of one machine.
type Summary struct {
	States      [CompleteAbort + 1]int // number of transactional ids by state
	OldestStart time.Time              // of the oldest open transaction; zero if there is none
}

// Summarize answers with a Summary.
func (m *Machine) Summarize(now time.Time, to coordinator.Token) coordinator.Output {
	s := Summary{States: m.counts}
	if m.counts[Ongoing] > 0 {
		for _, t := range m.txns {
			if start := time.UnixMilli(t.startMillis); t.state == Ongoing && (s.OldestStart.IsZero() || start.Before(s.OldestStart)) {
				s.OldestStart = start
			}
		}
	}
	return to.Reply(s)
}
