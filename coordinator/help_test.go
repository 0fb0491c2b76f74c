package coordinator_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"oncelog/coordinator"
	"oncelog/coordinator/coordinatortest"
)

// ledger is a machine for tests: a map, whose values go to effects and whose readers can be parked.
type ledger struct {
	values   map[string]string
	pending  map[int64]map[string]string // by producer: what its transaction will put
	waiters  map[string][]coordinator.Token
	deadline time.Time
	ticks    int
	onTick   func(now time.Time) coordinator.Output
}

func newLedger(_, _ int32) *ledger {
	return &ledger{values: map[string]string{}, pending: map[int64]map[string]string{}, waiters: map[string][]coordinator.Token{}}
}

func (m *ledger) Replay(_ int64, r coordinator.Record) error {
	switch {
	case r.IsMarker:
		if r.Marker.Commit {
			maps.Copy(m.values, m.pending[r.ProducerID])
		}
		delete(m.pending, r.ProducerID)
	case r.Transactional:
		if m.pending[r.ProducerID] == nil {
			m.pending[r.ProducerID] = map[string]string{}
		}
		m.pending[r.ProducerID][string(r.Key)] = string(r.Value)
	case string(r.Key) == "poison":
		return errors.New("poison")
	case r.Value == nil:
		delete(m.values, string(r.Key))
	default:
		m.values[string(r.Key)] = string(r.Value)
	}
	return nil
}

func (m *ledger) Recover(time.Time) coordinator.Output {
	var out coordinator.Output
	for k, v := range m.values {
		out.Effects = append(out.Effects, k+"="+v)
	}
	return out
}

func (m *ledger) Deadline() time.Time { return m.deadline }

func (m *ledger) Tick(now time.Time) coordinator.Output {
	m.ticks++
	m.deadline = time.Time{}
	if m.onTick == nil {
		return coordinator.Output{}
	}
	return m.onTick(now)
}

type (
	host  = coordinator.Host[*ledger]
	shard = coordinator.Shard[*ledger]
	op    = func(m *ledger, now time.Time, to coordinator.Token) coordinator.Output
)

func pairs(kv ...string) []coordinator.KeyValue {
	var records []coordinator.KeyValue
	for i := 0; i < len(kv); i += 2 {
		records = append(records, coordinator.KeyValue{Key: []byte(kv[i]), Value: []byte(kv[i+1])})
	}
	return records
}

// put appends, gives an effect, and answers with what was there before.
func put(k, v string) op {
	return func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		out := to.Reply(m.values[k])
		out.Batch.Records = pairs(k, v)
		out.Effects = []any{k + "=" + v}
		return out
	}
}

func get(k string) op {
	return func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output { return to.Reply(m.values[k]) }
}

// bench is one host with one shard on one log.
type bench struct {
	t    *testing.T
	host *host
	log  *coordinatortest.Log

	mu      sync.Mutex
	effects []string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, log: &coordinatortest.Log{}}
	b.open()
	b.load(1)
	return b
}

func (b *bench) open() {
	b.host = coordinator.NewHost(coordinator.Options[*ledger]{
		Topic: "test",
		New:   newLedger,
		Effects: func(_ *shard, effects []any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, e := range effects {
				b.effects = append(b.effects, e.(string))
			}
		},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	b.t.Cleanup(b.host.Close)
}

func (b *bench) load(epoch int32) {
	b.host.Load(0, epoch, b.log)
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if err := b.host.AwaitLoaded(ctx, 0); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) shard() *shard {
	b.t.Helper()
	s, err := b.host.Get(0)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) do(o op) (any, error) {
	b.t.Helper()
	return b.shard().Do(o).Await(b.t.Context())
}

func (b *bench) mustDo(o op) any {
	b.t.Helper()
	v, err := b.do(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bench) takeEffects() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.Join(b.effects, " ")
	b.effects = nil
	return text
}

// values reads the whole machine.
func (b *bench) values() map[string]string {
	b.t.Helper()
	return b.mustDo(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		return to.Reply(maps.Clone(m.values))
	}).(map[string]string)
}

func fold(t *testing.T, log coordinator.Log) map[string]string {
	t.Helper()
	b := &bench{t: t}
	b.open()
	h := b.host
	defer h.Close()
	h.Load(7, 1, log)
	if err := h.AwaitLoaded(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	s, err := h.Get(7)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Do(func(m *ledger, _ time.Time, to coordinator.Token) coordinator.Output {
		return to.Reply(maps.Clone(m.values))
	}).Await(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]string)
}
