package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

// fate is what a producer knows of a transaction.
type fate int8

const (
	aborted   fate = iota // or never asked to commit: nobody may see it
	committed             // acknowledged: everybody must see it
	unknown               // asked to commit, and no answer: all of it or nothing
)

// transaction is one of a writer, as it wrote it.
type transaction struct {
	fate    fate
	records map[int32][]string // per partition, in order
}

// load is the clients that work while the broker is killed, and what they know.
type load struct {
	ctx context.Context
	b   *brokertest.Broker

	writing, copying         context.Context // end when the clients are to finish what they do, and stop
	endWriting, endCopying   context.CancelFunc
	writers, copiers, follow sync.WaitGroup
	seeds                    []uint64 // of the clients, drawn at the start

	mu sync.Mutex
	// The accounts, guarded by mu.
	transactions map[string]*transaction     // by writer and number
	acked        []string                    // values of the plain topic, in order
	seen         map[string]map[place]string // what the reader saw, by topic
	copies       int                         // transactions of copiers that were committed
	faults       []string
}

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

func newLoad(ctx context.Context, b *brokertest.Broker, random *rand.Rand) *load {
	l := &load{ctx: ctx, b: b, transactions: map[string]*transaction{}, seen: map[string]map[place]string{inTopic: {}, outTopic: {}}}
	l.writing, l.endWriting = context.WithCancel(ctx)
	l.copying, l.endCopying = context.WithCancel(ctx)
	for range writers + copiers + 1 {
		l.seeds = append(l.seeds, random.Uint64())
	}
	return l
}

func (l *load) start() {
	next := func() *rand.Rand {
		r := rand.New(rand.NewPCG(l.seeds[0], 1))
		l.seeds = l.seeds[1:]
		return r
	}
	for i := range writers {
		random := next()
		l.writers.Go(func() { l.write(fmt.Sprint("writer-", i), random) })
	}
	l.writers.Go(l.producePlain)
	for i := range copiers {
		random := next()
		l.copiers.Go(func() {
			for l.copying.Err() == nil {
				l.copySession(fmt.Sprint("copier-", i), random)
			}
		})
	}
	l.follow.Go(l.followCommitted)
}

// stopWriting lets writers and producers finish; afterwards none of their transactions is open.
func (l *load) stopWriting() {
	l.endWriting()
	l.writers.Wait()
}

// stopCopying waits until all of in is copied, and ends the copiers and the reader.
func (l *load) stopCopying(t *testing.T, in map[int32][]*kgo.Record) {
	t.Helper()
	want := 0
	for _, rs := range in {
		want += len(rs)
	}
	for {
		out, err := readTopic(l.ctx, l.b, outTopic)
		if err != nil {
			t.Fatalf("read out: %v", err)
		}
		have := 0
		for _, rs := range out {
			have += len(rs)
		}
		if have >= want {
			break
		}
		if l.ctx.Err() != nil {
			t.Fatalf("%d of %d records are copied", have, want)
		}
		wait(l.ctx, 100*time.Millisecond)
	}
	l.endCopying()
	l.copiers.Wait()
	l.follow.Wait()
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *load) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[fate]int{}
	for _, t := range l.transactions {
		n[t.fate]++
	}
	return fmt.Sprintf("%d transactions committed, %d aborted, %d unknown, %d copied, %d plain records", n[committed], n[aborted], n[unknown], l.copies, len(l.acked))
}

// write makes transactions over several partitions, about every third of them aborted.
func (l *load) write(id string, random *rand.Rand) {
	var cl *kgo.Client
	number := 0
	for l.writing.Err() == nil {
		if cl == nil {
			cl = client(l.b, kgo.TransactionalID(id), kgo.TransactionTimeout(20*time.Second))
		}
		number++
		if !l.writeOne(cl, id, number, random) {
			cl.Close()
			cl = nil
		}
	}
	if cl != nil {
		cl.Close()
	}
	// Whatever was left open is ended before the next of the id gets its epoch.
	last := client(l.b, kgo.TransactionalID(id))
	defer last.Close()
	if _, _, err := last.ProducerID(l.ctx); err != nil {
		l.fault("%s: the last producer id: %v", id, err)
	}
}

// writeOne makes one transaction, and tells if its client can go on.
func (l *load) writeOne(cl *kgo.Client, id string, number int, random *rand.Rand) bool {
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	tx := &transaction{fate: aborted, records: map[int32][]string{}}
	name := fmt.Sprintf("%s/%d", id, number)
	l.mu.Lock()
	l.transactions[name] = tx
	l.mu.Unlock()
	if err := cl.BeginTransaction(); err != nil {
		return false
	}
	written := kgo.AbortingFirstErrPromise(cl)
	for _, p := range random.Perm(partitions)[:2+random.IntN(partitions-1)] {
		for i := range 1 + random.IntN(4) {
			v := fmt.Sprintf("%s/%d/%d %s", name, p, i, strings.Repeat("x", random.IntN(600)))
			tx.records[int32(p)] = append(tx.records[int32(p)], v)
			cl.Produce(ctx, &kgo.Record{Topic: inTopic, Partition: int32(p), Value: []byte(v)}, written.Promise())
		}
	}
	abort := random.IntN(3) == 0
	if written.Err() != nil || abort { // written: else there is nothing to abort
		return cl.EndTransaction(ctx, kgo.TryAbort) == nil
	}
	l.settle(tx, unknown)
	if cl.EndTransaction(ctx, kgo.TryCommit) != nil {
		return false
	}
	l.settle(tx, committed)
	return true
}

func (l *load) settle(tx *transaction, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tx.fate = f
}

// producePlain produces without transactions. The client never gives a record up, so each is acknowledged once, in order.
func (l *load) producePlain() {
	cl := client(l.b)
	defer cl.Close()
	for n := 0; l.writing.Err() == nil; {
		for range 20 {
			v := fmt.Sprintf("plain %d", n)
			n++
			cl.Produce(l.ctx, &kgo.Record{Topic: plainTopic, Partition: 0, Value: []byte(v)}, func(_ *kgo.Record, err error) {
				if err != nil {
					l.fault("%s: %v", v, err)
					return
				}
				l.mu.Lock()
				l.acked = append(l.acked, v)
				l.mu.Unlock()
			})
		}
		if err := cl.Flush(l.ctx); err != nil {
			l.fault("flush: %v", err)
			return
		}
	}
}

// copySession copies in to out, offsets in the same transaction, until something goes wrong.
func (l *load) copySession(id string, random *rand.Rand) {
	s, err := kgo.NewGroupTransactSession(append(common(l.b),
		kgo.TransactionalID(id), kgo.TransactionTimeout(20*time.Second),
		kgo.ConsumerGroup("copiers"), kgo.ConsumeTopics(inTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(3*time.Second), kgo.HeartbeatInterval(200*time.Millisecond))...)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	for l.copying.Err() == nil {
		rs := s.PollRecords(l.copying, 1+random.IntN(60)).Records()
		if len(rs) == 0 {
			continue
		}
		if !l.copyOne(s, rs, random.IntN(6) != 0) {
			return
		}
	}
}

func (l *load) copyOne(s *kgo.GroupTransactSession, rs []*kgo.Record, commit bool) bool {
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	if s.Begin() != nil {
		return false
	}
	written := kgo.AbortingFirstErrPromise(s.Client())
	for _, r := range rs {
		s.Produce(ctx, &kgo.Record{Topic: outTopic, Partition: r.Partition, Value: r.Value, Key: fmt.Append(nil, r.Offset)}, written.Promise())
	}
	ok, err := s.End(ctx, kgo.TransactionEndTry(written.Err() == nil && commit))
	if err != nil {
		return false
	}
	if ok {
		l.mu.Lock()
		l.copies++
		l.mu.Unlock()
	}
	return true
}

// followCommitted reads along. What it has seen once must stay what it was.
func (l *load) followCommitted() {
	cl := client(l.b, kgo.ConsumeTopics(inTopic, outTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	last := map[string]map[int32]int64{inTopic: {}, outTopic: {}}
	for l.copying.Err() == nil {
		cl.PollFetches(l.copying).EachRecord(func(r *kgo.Record) {
			if before, ok := last[r.Topic][r.Partition]; ok && r.Offset <= before {
				l.fault("%s-%d: the reader got offset %d after %d", r.Topic, r.Partition, r.Offset, before)
			}
			last[r.Topic][r.Partition] = r.Offset
			l.mu.Lock()
			l.seen[r.Topic][place{r.Partition, r.Offset}] = string(r.Value)
			l.mu.Unlock()
		})
	}
}
