package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m.Run)) }

const (
	inTopic, outTopic, plainTopic = "in", "out", "plain"
	partitions                    = 4
	writers, copiers              = 3, 2
)

var settings = []string{
	"group.initial.rebalance.delay.ms=0",
	"group.min.session.timeout.ms=1000",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
	"offsets.topic.num.partitions=4",
	"transaction.state.log.num.partitions=4",
	"log.segment.bytes=1048576",
	"log.recovery.max.bytes=20000", // recovery points advance all the time
}

// number is one of the environment, or what holds without it.
func number(t *testing.T, name string, missing uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return missing
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// plan is the random source of a test; its seed is logged.
func plan(t *testing.T) *rand.Rand {
	t.Helper()
	seed := number(t, "CRASH_SEED", uint64(time.Now().UnixNano()))
	t.Logf("CRASH_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func kills(t *testing.T) int {
	if testing.Short() {
		return 2
	}
	return int(number(t, "CRASH_KILLS", 6))
}

// wait lets d pass.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func common(b *brokertest.Broker) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(b.Addr()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.DialTimeout(2 * time.Second),
		kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
}

func client(b *brokertest.Broker, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(common(b), opts...)...)
	if err != nil {
		panic(err) // options that make no sense
	}
	return cl
}

func createTopics(t *testing.T, ctx context.Context, b *brokertest.Broker, n int32, topics ...string) {
	t.Helper()
	cl := client(b)
	defer cl.Close()
	resp, err := kadm.NewClient(cl).CreateTopics(ctx, n, 1, nil, topics...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatalf("create topics: %v", err)
	}
}

// The broker is killed again and again under all kinds of load, and all accounts agree in the end.
func TestNothingIsLostDoubledOrTorn(t *testing.T) {
	brokertest.NeedOwn(t)
	random, n := plan(t), kills(t)
	b := brokertest.Start(t, settings...)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second+time.Duration(n)*4*time.Second)
	defer cancel()
	createTopics(t, ctx, b, partitions, inTopic, outTopic, plainTopic)

	l := newLoad(ctx, b, random)
	l.start()
	for i := range n {
		wait(ctx, time.Duration(50+random.IntN(700))*time.Millisecond)
		if random.IntN(8) == 0 {
			b.Stop()
		} else {
			b.Kill()
		}
		b.Restart()
		if ctx.Err() != nil {
			t.Fatalf("out of time after %d kills", i+1)
		}
	}
	wait(ctx, 500*time.Millisecond)
	l.stopWriting()
	found := settle(t, ctx, b)
	l.stopCopying(t, found)
	checkAll(t, l, read(t, ctx, b))

	// Once more from the disk alone, after a clean stop.
	before := read(t, ctx, b)
	b.Stop()
	b.Restart()
	if after := read(t, ctx, b); !before.equal(after) {
		t.Error("a clean restart changed what readers see")
	}
	t.Logf("%d kills, %s", n, l.summary())
}

// A commit that is under way when the broker dies is seen in all of its partitions or in none, and in all of them if it was
// acknowledged: the markers that were not written yet are still owed.
func TestMarkersAreOwed(t *testing.T) {
	brokertest.NeedOwn(t)
	random := plan(t)
	b := brokertest.Start(t, settings...)
	const many = 30
	rounds := max(4, kills(t))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second+time.Duration(rounds)*4*time.Second)
	defer cancel()
	createTopics(t, ctx, b, many, "wide")
	acked := make([]bool, rounds)
	for round := range rounds {
		acked[round] = commitAndDie(t, ctx, b, many, round, random)
		b.Restart()
		// The next of the same id waits until the last transaction has ended, one way or the other.
		heir := client(b, kgo.TransactionalID("wide"))
		if _, _, err := heir.ProducerID(ctx); err != nil {
			t.Fatalf("round %d: the next producer: %v", round, err)
		}
		heir.Close()
	}
	got, err := readTopic(ctx, b, "wide")
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, rounds)
	for _, rs := range got {
		for _, r := range rs {
			var round int
			if _, err := fmt.Sscanf(string(r.Value), "round %d", &round); err != nil {
				t.Fatalf("record %q", r.Value)
			}
			seen[round]++
		}
	}
	for round, n := range seen {
		if n != many && (n != 0 || acked[round]) {
			t.Errorf("round %d: %d of %d partitions have it, acknowledged: %v", round, n, many, acked[round])
		}
	}
	t.Logf("acknowledged %v, seen %v", acked, seen)
}

// commitAndDie writes to all partitions in one transaction, commits it and ends the broker, in even rounds as soon as the
// commit is acknowledged, in others at some moment of it. It tells if the commit was acknowledged.
func commitAndDie(t *testing.T, ctx context.Context, b *brokertest.Broker, many, round int, random *rand.Rand) bool {
	t.Helper()
	cl := client(b, kgo.TransactionalID("wide"))
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	var rs []*kgo.Record
	for p := range many {
		rs = append(rs, &kgo.Record{Topic: "wide", Partition: int32(p), Value: fmt.Appendf(nil, "round %d", round)})
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	end := make(chan error, 1)
	go func() { end <- cl.EndTransaction(ending, kgo.TryCommit) }()
	var err error
	answered := false
	if round%2 == 0 {
		err, answered = <-end, true
	} else {
		wait(ctx, time.Duration(random.IntN(1500))*time.Microsecond)
	}
	if round%4 < 2 {
		b.Kill()
	} else {
		b.Stop()
	}
	cancel()
	if !answered {
		err = <-end
	}
	return err == nil
}
