package txncoordinator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// TestListFilters: states, producer ids, duration, and ids; an id that never began a transaction is older than anything.
func TestListFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.host.Close() }()
		for _, id := range []string{"idle", "old", "young"} {
			w.do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
				return m.InitProducerID(now, to, InitProducerID{TransactionalID: id, TimeoutMillis: 900000, Expected: NoProducer})
			})
		}
		begin := func(id string, producerID int64) {
			w.do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
				return m.AddPartitions(now, to, AddPartitions{TransactionalID: id, Producer: Producer{producerID, 0}, Partitions: Partitions{{"t", []int32{0}}}})
			})
		}
		begin("old", 1001)
		<-time.After(time.Minute)
		begin("young", 1002)
		for _, c := range []struct {
			name   string
			filter Filter
			want   string
		}{
			{"none", Filter{LongerThan: -1}, "idle old young"},
			{"state", Filter{LongerThan: -1, States: map[kmsg.TransactionState]bool{Ongoing: true}}, "old young"},
			{"no state", Filter{LongerThan: -1, States: map[kmsg.TransactionState]bool{}}, ""},
			{"producer", Filter{LongerThan: -1, ProducerIDs: map[int64]bool{1000: true, 1002: true}}, "idle young"},
			{"duration", Filter{LongerThan: 59 * time.Second}, "idle old"},
			{"duration, exclusive", Filter{LongerThan: time.Minute}, "idle"},
			{"zero duration", Filter{LongerThan: 0}, "idle old"},
			{"id", Filter{LongerThan: -1, ID: func(id string) bool { return id == "old" }}, "old"},
		} {
			v, err := w.shard().Do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
				return m.List(now, to, c.filter)
			}).Await(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, row := range v.([]kmsg.ListTransactionsResponseTransactionState) {
				got = append(got, row.TransactionalID)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: %s, want %s", c.name, text, c.want)
			}
		}
		v, err := w.shard().Do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.Summarize(now, to)
		}).Await(context.Background())
		s, _ := v.(Summary)
		if err != nil || s.States[Ongoing] != 2 || s.States[Empty] != 1 || time.Since(s.OldestStart) != time.Minute {
			t.Errorf("%+v %v", s, err)
		}
	})
}
