package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/tests/brokertest"
)

// Whatever is produced comes back the same: keys, values, null and empty, headers, order, with every codec.
func TestProducedIsConsumed(t *testing.T) {
	b := brokertest.Start(t, settings...)
	for codec, opt := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(codec, func(t *testing.T) {
			topic := newTopic(t, b, 2, nil)
			cl := newClient(t, b, kgo.ProducerBatchCompression(opt))
			ctx := within(t, 20*time.Second)
			sent := []*kgo.Record{
				{Topic: topic, Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}}},
				{Topic: topic, Key: nil, Value: nil},
				{Topic: topic, Key: []byte{}, Value: []byte{}},
				{Topic: topic, Value: bytes.Repeat([]byte("long "), 20000)},
			}
			for i := range 500 {
				sent = append(sent, record(topic, 0, fmt.Sprint(i)))
			}
			mustProduce(t, ctx, cl, sent...)
			got := uncommitted(t, b, topic)[0]
			if len(got) != len(sent) {
				t.Fatalf("got %d records, want %d", len(got), len(sent))
			}
			for i, w := range sent {
				g := got[i]
				if g.Offset != int64(i) || !same(g.Key, w.Key) || !same(g.Value, w.Value) || len(g.Headers) != len(w.Headers) {
					t.Fatalf("record %d: got %v, want %v", i, g, w)
				}
				for j, h := range w.Headers {
					if g.Headers[j].Key != h.Key || !same(g.Headers[j].Value, h.Value) {
						t.Fatalf("record %d: header %d: got %v, want %v", i, j, g.Headers[j], h)
					}
				}
			}
		})
	}
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// A committed transaction is seen whole in each partition, an aborted one by nobody who reads committed; who reads
// uncommitted sees both, in the order they were written.
func TestTransactionIsAllOrNothing(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 3, nil)
	cl := newClient(t, b, kgo.TransactionalID(name(t, "id")))
	ctx := within(t, 30*time.Second)
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		transact(t, ctx, cl, end, func() {
			for p := range int32(3) {
				mustProduce(t, ctx, cl, record(topic, p, fmt.Sprintf("%d-a", i)), record(topic, p, fmt.Sprintf("%d-b", i)))
			}
		})
	}
	seen, all := committed(t, b, topic), uncommitted(t, b, topic)
	for p := range int32(3) {
		wantValues(t, fmt.Sprintf("committed of %d", p), seen[p], "0-a", "0-b", "2-a", "2-b")
		wantValues(t, fmt.Sprintf("uncommitted of %d", p), all[p], "0-a", "0-b", "1-a", "1-b", "2-a", "2-b", "3-a", "3-b")
		if n := all[p][7].Offset; n != 10 {
			t.Errorf("the last record has offset %d, want 10: four transactions have four markers", n)
		}
	}
}

func transact(t *testing.T, ctx context.Context, cl *kgo.Client, end kgo.TransactionEndTry, work func()) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	work()
	if err := cl.EndTransaction(ctx, end); err != nil {
		t.Fatalf("end the transaction: %v", err)
	}
}

// What comes behind an open transaction waits for its end, and then appears in the order of the offsets.
func TestReadCommittedKeepsTheOrder(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 1, nil)
	ctx := within(t, 30*time.Second)
	slow, fast, plain := newClient(t, b, kgo.TransactionalID(name(t, "slow"))), newClient(t, b, kgo.TransactionalID(name(t, "fast"))), newClient(t, b)

	mustProduce(t, ctx, plain, record(topic, 0, "before"))
	if err := slow.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, ctx, slow, record(topic, 0, "slow-1"))
	mustProduce(t, ctx, plain, record(topic, 0, "plain"))
	transact(t, ctx, fast, kgo.TryCommit, func() { mustProduce(t, ctx, fast, record(topic, 0, "fast")) })
	transact(t, ctx, fast, kgo.TryAbort, func() { mustProduce(t, ctx, fast, record(topic, 0, "dropped")) })
	mustProduce(t, ctx, slow, record(topic, 0, "slow-2"))

	wantValues(t, "with the first transaction open", committed(t, b, topic)[0], "before")
	reader := newClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(1)}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if fs := reader.PollFetches(short); fs.NumRecords() > 0 {
		t.Errorf("a waiting reader got %q", values(fs.Records()))
	}
	if err := slow.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	var woken []*kgo.Record
	for len(woken) < 4 && ctx.Err() == nil {
		woken = append(woken, reader.PollFetches(ctx).Records()...)
	}
	wantValues(t, "the reader that waited", woken, "slow-1", "plain", "fast", "slow-2")
	wantValues(t, "in the end", committed(t, b, topic)[0], "before", "slow-1", "plain", "fast", "slow-2")
}

// Whoever comes second with a transactional id fences the first, whose transaction is gone.
func TestZombieIsFenced(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic, id := newTopic(t, b, 1, nil), name(t, "id")
	ctx := within(t, 30*time.Second)
	zombie := newClient(t, b, kgo.TransactionalID(id))
	if err := zombie.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, ctx, zombie, record(topic, 0, "of the zombie"))

	heir := newClient(t, b, kgo.TransactionalID(id))
	transact(t, ctx, heir, kgo.TryCommit, func() { mustProduce(t, ctx, heir, record(topic, 0, "of the heir")) })

	err := zombie.ProduceSync(ctx, record(topic, 0, "too late")).FirstErr()
	if !fenced(err) {
		t.Errorf("the zombie's record: got %v, want it fenced", err)
	}
	if err := zombie.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the zombie committed")
	}
	transact(t, ctx, heir, kgo.TryCommit, func() { mustProduce(t, ctx, heir, record(topic, 0, "again")) })
	wantValues(t, "committed", committed(t, b, topic)[0], "of the heir", "again")
}

func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}

// A transaction whose producer is silent for too long is aborted by the broker, and its records give way.
func TestSilentTransactionTimesOut(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 1, nil)
	ctx := within(t, 60*time.Second)
	silent := newClient(t, b, kgo.TransactionalID(name(t, "id")), kgo.TransactionTimeout(time.Second))
	if err := silent.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, ctx, silent, record(topic, 0, "of the silent"))
	mustProduce(t, ctx, newClient(t, b), record(topic, 0, "behind"))
	reader := newClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var got []*kgo.Record
	for len(got) == 0 && ctx.Err() == nil {
		got = append(got, reader.PollFetches(ctx).Records()...)
	}
	wantValues(t, "after the time-out", got, "behind")
	if err := silent.EndTransaction(ctx, kgo.TryCommit); err == nil {
		t.Error("the timed-out transaction was committed")
	}
}

// Offsets committed in a transaction are the group's when it commits, and are not when it aborts.
func TestOffsetsGoWithTheTransaction(t *testing.T) {
	b := brokertest.Start(t, settings...)
	in, out, group := newTopic(t, b, 1, nil), newTopic(t, b, 1, nil), name(t, "group")
	ctx := within(t, 60*time.Second)
	var rs []*kgo.Record
	for _, v := range numbered("", 30) {
		rs = append(rs, record(in, 0, v))
	}
	mustProduce(t, ctx, newClient(t, b), rs...)
	plain := newClient(t, b)

	session := newSession(t, b, in, group, name(t, "id"))
	defer session.Close()
	for round, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := session.Begin(); err != nil {
			t.Fatal(err)
		}
		n, written := 0, kgo.AbortingFirstErrPromise(session.Client())
		for n < 30 && ctx.Err() == nil {
			for _, r := range session.PollFetches(ctx).Records() {
				session.Produce(ctx, record(out, 0, "copy of "+string(r.Value)), written.Promise())
				n++
			}
		}
		if err := written.Err(); err != nil {
			t.Fatal(err)
		}
		if ok, err := session.End(ctx, end); err != nil || ok != bool(end) {
			t.Fatalf("round %d: end: %v, %v", round, ok, err)
		}
		want := int64(-1)
		if end == kgo.TryCommit {
			want = 30
		}
		if at := committedOffset(t, ctx, plain, group, in); at != want {
			t.Errorf("round %d: the group is at %d, want %d", round, at, want)
		}
	}
	wantValues(t, "out", committed(t, b, out)[0], numbered("copy of ", 30)...)
}

func newSession(t *testing.T, b *brokertest.Broker, in, group, id string) *kgo.GroupTransactSession {
	t.Helper()
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(b.Addr()), kgo.TransactionalID(id), kgo.ConsumerGroup(group), kgo.ConsumeTopics(in),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond), kgo.TransactionTimeout(20*time.Second), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// committedOffset is where the group is once no transaction holds an offset of it. It names the partition: a request for
// all of a group does not tell of one that has nothing but an offset in a transaction.
func committedOffset(t *testing.T, ctx context.Context, cl *kgo.Client, group, topic string) int64 {
	t.Helper()
	for {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.RequireStable = group, true
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			t.Fatalf("fetch offsets: %v, %+v", err, resp)
		}
		p := resp.Topics[0].Partitions[0]
		err = kerr.ErrorForCode(p.ErrorCode)
		if errors.Is(err, kerr.UnstableOffsetCommit) {
			continue
		}
		if err != nil {
			t.Fatalf("fetch offsets: %v", err)
		}
		return p.Offset
	}
}

// Two members share the partitions; when one leaves the other has them all, and what was committed is not read again.
func TestGroupSharesPartitions(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic, group := newTopic(t, b, 6, nil), name(t, "group")
	ctx := within(t, 60*time.Second)
	producer := newClient(t, b)
	produceRound := func(round int) (want []string) {
		for p := range int32(6) {
			v := fmt.Sprintf("%d of %d", round, p)
			mustProduce(t, ctx, producer, record(topic, p, v))
			want = append(want, v)
		}
		return want
	}
	member := func() *kgo.Client {
		return newClient(t, b, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond), kgo.FetchMaxWait(200*time.Millisecond))
	}
	first, second := member(), member()
	if got := pollUntil(t, ctx, produceRound(1), first, second); len(got) != 6 {
		t.Errorf("the first round was read as %q", got)
	}
	second.LeaveGroup()
	second.Close()
	got := pollUntil(t, ctx, produceRound(2), first)
	for _, v := range got {
		if strings.HasPrefix(v, "1 ") {
			t.Errorf("%q was committed, and read again", v)
		}
	}
	described, err := kadm.NewClient(producer).DescribeGroups(ctx, group)
	if err != nil || described[group].State != "Stable" || len(described[group].Members) != 1 {
		t.Errorf("the group is %+v, %v", described[group], err)
	}
}

// pollUntil reads with all members until each value was seen, committing as it goes, and gives what was read.
func pollUntil(t *testing.T, ctx context.Context, want []string, members ...*kgo.Client) (got []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			for ctx.Err() == nil {
				fs := m.PollFetches(ctx)
				if fs.NumRecords() == 0 {
					continue
				}
				if err := m.CommitRecords(ctx, fs.Records()...); err != nil {
					continue // a rebalance: whoever has the partition now reads it again
				}
				mu.Lock()
				got = append(got, values(fs.Records())...)
				if containsAll(got, want) {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if !containsAll(got, want) {
		t.Fatalf("read %q, want %q", got, want)
	}
	return got
}

func containsAll(got, want []string) bool {
	return !slices.ContainsFunc(want, func(v string) bool { return !slices.Contains(got, v) })
}
