package txncoordinator

import (
	"iter"
	"log/slog"
	"testing"
	"time"

	"oncelog/coordinator"
	"oncelog/protocol"
)

// countingLog commits all at once and keeps nothing.
type countingLog struct{ end int64 }

func (l *countingLog) Append(coordinator.AppendRequest) (int64, error) {
	l.end++
	return l.end - 1, nil
}
func (l *countingLog) Committed() (int64, <-chan struct{}) { return l.end, nil }
func (l *countingLog) Batches(int64) iter.Seq2[protocol.Batch, error] {
	return func(func(protocol.Batch, error) bool) {}
}

// BenchmarkTransaction is one transaction of one partition as the coordinator sees it: add, end, markers written.
func BenchmarkTransaction(b *testing.B) {
	var id int64
	host := coordinator.NewHost(coordinator.Options[*Machine]{
		Topic: "__transaction_state",
		New: func(_, epoch int32) *Machine {
			return New(Options{
				CoordinatorEpoch: epoch,
				NextProducerID:   func() (int64, error) { id++; return id, nil },
				Settings: func() Settings {
					return Settings{TransactionVersion: 2, TimeoutInterval: time.Minute, Expiration: time.Hour, ExpirationInterval: time.Hour}
				},
			})
		},
		Effects: func(s *Shard, effects []any) {
			for _, e := range effects {
				m := e.(*Markers)
				s.Tell(func(machine *Machine, now time.Time) coordinator.Output { return machine.Marked(now, m, m.Partitions) })
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	defer host.Close()
	host.Load(0, 0, &countingLog{})
	if err := host.AwaitLoaded(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	shard, err := host.Get(0)
	if err != nil {
		b.Fatal(err)
	}
	do := func(op func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output) Producer {
		v, err := shard.Do(op).Await(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p, _ := v.(Producer)
		return p
	}
	p := do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.InitProducerID(now, to, InitProducerID{TransactionalID: "a", TimeoutMillis: 60000, Expected: NoProducer})
	})
	b.ReportAllocs()
	for b.Loop() {
		do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.AddPartitions(now, to, AddPartitions{TransactionalID: "a", Producer: p, Partitions: Partitions{{"topic", []int32{0}}}, ClientVersion: 2})
		})
		p = do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.EndTxn(now, to, EndTxn{TransactionalID: "a", Producer: p, Commit: true, ClientVersion: 2, Wait: time.Second})
		})
	}
}
