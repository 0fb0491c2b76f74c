package txncoordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/coordinator/coordinatortest"
)

// brokers are the partitions' leaders as a sender sees them: broker 1 is its own, all others are remote.
type brokers struct {
	mu      sync.Mutex
	leaders map[string]int32 // by partition; none if it doesn't exist
	fails   map[string]*kerr.Error
	down    map[int32]bool
	written []string // what succeeded
	tries   int
	changed chan struct{}
	block   chan struct{} // remote and local answers wait for it, if not nil
}

func newBrokers() *brokers {
	return &brokers{leaders: map[string]int32{}, fails: map[string]*kerr.Error{}, down: map[int32]bool{}, changed: make(chan struct{})}
}

func (b *brokers) leader(topic string, partition int32) (int32, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.leaders[fmt.Sprintf("%s-%d", topic, partition)]
	return l, ok
}

// lead changes leaders; a leader below -1 removes the partition.
func (b *brokers) lead(leader int32, partitions ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range partitions {
		b.leaders[p] = leader
		if leader < -1 {
			delete(b.leaders, p)
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *brokers) fail(err *kerr.Error, partition string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails[partition] = err
	if err == nil {
		delete(b.fails, partition)
	}
}

func (b *brokers) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *brokers) write(broker int32, req *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries++
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, m := range req.Markers {
		row := kmsg.NewWriteTxnMarkersResponseMarker()
		row.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				name := fmt.Sprintf("%s-%d", t.Topic, p)
				code := int16(0)
				if err := b.fails[name]; err != nil {
					code = err.Code
				} else {
					b.written = append(b.written, fmt.Sprintf("%s@%d", name, broker))
				}
				topic.Partitions = append(topic.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: code})
			}
			row.Topics = append(row.Topics, topic)
		}
		resp.Markers = append(resp.Markers, row)
	}
	return resp
}

func (b *brokers) local(req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, func(context.Context) *kmsg.WriteTxnMarkersResponse) {
	if b.block == nil {
		return b.write(1, req), nil
	}
	return nil, func(ctx context.Context) *kmsg.WriteTxnMarkersResponse {
		select {
		case <-b.block:
			return b.write(1, req)
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *brokers) remote(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	if b.block != nil {
		select {
		case <-b.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	down := b.down[broker]
	b.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	return b.write(broker, req), nil
}

// take gives what was written since the last call.
func (b *brokers) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.written)
	text := strings.Join(b.written, " ")
	b.written = nil
	return text
}

// sending is a world whose markers a Sender brings to brokers.
type sending struct {
	*world
	*brokers
	sender *Sender
}

func newSending(t *testing.T) *sending {
	s := &sending{brokers: newBrokers()}
	s.sender = NewSender(SenderOptions{
		NodeID: 1, Leader: s.leader, Local: s.local, Remote: s.remote, Changed: s.changes, Logger: slog.New(slog.DiscardHandler),
	})
	w := &world{t: t, settings: Settings{TransactionVersion: 2, TimeoutInterval: time.Hour, Expiration: time.Hour * 1000, ExpirationInterval: time.Hour}}
	w.host = coordinator.NewHost(coordinator.Options[*Machine]{
		Topic: "__transaction_state",
		New: func(_, epoch int32) *Machine {
			return New(Options{CoordinatorEpoch: epoch, NextProducerID: w.producerID, Settings: func() Settings { return w.settings }})
		},
		Effects: s.sender.Send,
		Logger:  slog.New(slog.DiscardHandler),
	})
	w.log = &coordinatortest.Log{}
	w.host.Load(0, 0, w.log)
	s.world = w
	synctest.Wait()
	return s
}

func (s *sending) close() {
	s.host.Close()
	s.sender.Close()
}

// commit runs a transaction up to its decision, and tells the state of the id afterwards.
func (s *sending) commit(id string, partitions ...string) {
	var set Partitions
	for _, p := range partitions {
		set = set.with(parsePartition(p))
	}
	p, err := s.ask(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.InitProducerID(now, to, InitProducerID{TransactionalID: id, TimeoutMillis: 60000, Expected: NoProducer})
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.ask(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.AddPartitions(now, to, AddPartitions{TransactionalID: id, Producer: p, Partitions: set, ClientVersion: 2})
	}); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.ask(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.EndTxn(now, to, EndTxn{TransactionalID: id, Producer: p, Commit: true, ClientVersion: 2})
	}); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

func (s *sending) state(id string) string {
	synctest.Wait()
	v, err := s.shard().Do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		return m.Describe(now, to, id)
	}).Await(context.Background())
	if err != nil {
		return err.Error()
	}
	row := v.(kmsg.DescribeTransactionsResponseTransactionState)
	var p Partitions
	for _, t := range row.Topics {
		p = append(p, Topic{t.Topic, t.Partitions})
	}
	return row.State + " " + partitionsText(p)
}

func (s *sending) expect(id, state, written string) {
	s.t.Helper()
	if got := s.state(id); got != state {
		s.t.Errorf("%s is %s, want %s", id, got, state)
	}
	if got := s.take(); got != written {
		s.t.Errorf("written %q, want %q", got, written)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, s *sending)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending(t)
		defer s.close()
		f(t, s)
	})
}

// TestMarkersGoToLeaders: one request per broker, the own partitions without one.
func TestMarkersGoToLeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.lead(1, "t-0", "u-0")
		s.lead(2, "t-1", "u-1")
		s.lead(3, "t-2")
		s.commit("a", "t-0", "t-1", "t-2", "u-0", "u-1")
		s.expect("a", "CompleteCommit []", "t-0@1 t-1@2 t-2@3 u-0@1 u-1@2")
		if s.tries != 3 {
			t.Errorf("%d requests", s.tries)
		}
		s.commit("b", "t-0")
		s.expect("b", "CompleteCommit []", "t-0@1")
	})
}

// TestMarkerWaitsForLeader: a partition without a leader is owed its marker until it has one, however long that takes. Only
// a partition that exists no more is not.
func TestMarkerWaitsForLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.lead(1, "t-0")
		s.lead(-1, "t-1")
		s.commit("a", "t-0", "t-1", "gone-0")
		s.expect("a", "PrepareCommit [t-1]", "t-0@1")
		<-time.After(time.Hour)
		s.expect("a", "PrepareCommit [t-1]", "")
		s.lead(1, "t-1")
		s.expect("a", "CompleteCommit []", "t-1@1")
		s.lead(-1, "t-1")
		s.commit("b", "t-1")
		s.lead(-2, "t-1") // deleted
		s.expect("b", "CompleteCommit []", "")
	})
}

// TestMarkerIsRetried: whatever a partition answers that passes, or a broker that is away, is tried again, ever less often.
func TestMarkerIsRetried(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
		kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.UnknownServerError, kerr.CorruptMessage,
	} {
		t.Run(err.Message, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *sending) {
				s.lead(1, "t-0")
				s.lead(2, "t-1")
				s.fail(err, "t-0")
				s.down[2] = true
				s.commit("a", "t-0", "t-1")
				<-time.After(time.Minute)
				s.expect("a", "PrepareCommit [t-0 t-1]", "")
				if s.tries < 10 || s.tries > 60 {
					t.Errorf("%d tries in a minute", s.tries)
				}
				s.lead(3, "t-1")
				s.expect("a", "PrepareCommit [t-0]", "t-1@3")
				s.fail(nil, "t-0")
				<-time.After(retryMax)
				s.expect("a", "CompleteCommit []", "t-0@1")
			})
		})
	}
}

// TestRefusedMarkerStaysOwed: a partition that knows a later epoch, of the producer or of the coordinator, holds up its own marker alone. Only one
// that can't take markers at all is owed none.
func TestRefusedMarkerStaysOwed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.lead(1, "t-0", "t-1")
		s.fail(kerr.UnsupportedForMessageFormat, "t-0")
		s.commit("a", "t-0", "t-1")
		s.expect("a", "CompleteCommit []", "t-1@1")
		for id, err := range map[string]*kerr.Error{"b": kerr.TransactionCoordinatorFenced, "c": kerr.InvalidProducerEpoch} {
			s.fail(err, "t-0")
			s.commit(id, "t-0", "t-1")
			<-time.After(time.Hour)
			s.expect(id, "PrepareCommit [t-0]", "t-1@1")
			s.fail(nil, "t-0")
			<-time.After(retryMax)
			s.expect(id, "CompleteCommit []", "t-0@1")
		}
	})
}

// TestMarkersOfLostShard are not sent any more: the next coordinator does.
func TestMarkersOfLostShard(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.lead(-1, "t-0")
		s.commit("a", "t-0")
		log := s.log
		s.host.Unload(0, 0)
		s.lead(2, "t-0")
		<-time.After(time.Hour)
		if got := s.take(); got != "" {
			t.Errorf("written %q", got)
		}
		s.host.Load(0, 1, log.Next(true))
		s.expect("a", "CompleteCommit []", "t-0@2")
	})
}

// TestMarkersQueuePerBroker: while a broker takes its time, what comes for it is gathered into the next request.
func TestMarkersQueuePerBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.block = make(chan struct{})
		s.lead(1, "t-0")
		s.lead(2, "t-1")
		for i := range 5 {
			s.commit(fmt.Sprint("a", i), "t-0", "t-1")
		}
		if got := s.take(); got != "" {
			t.Fatalf("written %q", got)
		}
		close(s.block)
		for i := range 5 {
			if got := s.state(fmt.Sprint("a", i)); got != "CompleteCommit []" {
				t.Error(i, got)
			}
		}
		if s.tries != 5+2 {
			t.Errorf("%d requests", s.tries)
		}
	})
}

// TestManyPartitions: a transaction over more than what is written in line.
func TestManyPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprintf("t-%d", i))
			s.leaders[names[i]] = int32(1 + i%2)
		}
		s.commit("a", names...)
		if got := s.state("a"); got != "CompleteCommit []" {
			t.Error(got)
		}
		if len(s.written) != 1000 {
			t.Errorf("%d written", len(s.written))
		}
	})
}

// TestSenderCloses with work left.
func TestSenderCloses(t *testing.T) {
	inBubble(t, func(t *testing.T, s *sending) {
		s.block = make(chan struct{})
		s.lead(1, "t-0")
		s.lead(2, "t-1")
		s.lead(-1, "t-2")
		s.commit("a", "t-0", "t-1", "t-2")
		s.sender.Close()
		s.lead(1, "t-2")
		s.sender.Send(s.shard(), []any{&Markers{Partitions: Partitions{{"t", []int32{0, 1, 2}}}}})
	})
}
