package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeLoad is a topic read from its begin by each of some consumers.
type consumeLoad struct {
	bytes      int // of the topic, at full scale
	partitions int
	consumers  int
	committed  bool // isolation level
	perTxn     int  // records of 1 KiB in a transaction; 0: no transactions
	aborted    int  // one in so many transactions is aborted; 0: none
}

const consumeSize = 1 << 10

func (l consumeLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, l.partitions)
	if err != nil {
		return result{}, err
	}
	visible, err := l.fill(ctx, b, topic)
	if err != nil {
		return result{}, err
	}
	clients := make([]*kgo.Client, max(l.consumers, 1))
	for i := range clients {
		opts := []kgo.Opt{kgo.SeedBrokers(b.address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
		if l.committed {
			opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		}
		if clients[i], err = kgo.NewClient(opts...); err != nil {
			return result{}, err
		}
		defer clients[i].Close()
	}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	var group sync.WaitGroup
	failures := make([]error, len(clients))
	for i, cl := range clients {
		group.Go(func() { failures[i] = consume(ctx, cl, visible) })
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	return result{work: float64(len(clients)*l.records(b)*consumeSize) / 1e9, unit: "GB"}, b.deleteTopic(ctx, topic)
}

func (l consumeLoad) records(b *bed) int { return b.n(l.bytes) / consumeSize }

// consume polls until so many records have come.
func consume(ctx context.Context, cl *kgo.Client, records int) error {
	for records > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		records -= fetches.NumRecords()
	}
	return nil
}

// fill writes the topic, and tells how many of its records a consumer will see.
func (l consumeLoad) fill(ctx context.Context, b *bed, topic string) (visible int, err error) {
	if l.perTxn > 0 {
		return l.fillTransactions(ctx, b, topic)
	}
	p := produceLoad{size: consumeSize, acks: kgo.AllISRAcks(), codec: kgo.NoCompression(), linger: 5 * time.Millisecond}
	cl, err := kgo.NewClient(p.options(b.address, topic)...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	return l.records(b), writeAll(ctx, cl, l.records(b))
}

func writeAll(ctx context.Context, cl *kgo.Client, n int) error {
	list := values(consumeSize)
	var failure error
	for k := range n {
		cl.Produce(ctx, &kgo.Record{Value: list[k%len(list)]}, func(_ *kgo.Record, err error) { failure = errors.Join(failure, err) })
	}
	return errors.Join(cl.Flush(ctx), failure)
}

// fillTransactions does so by transactions of several producers, side by side, each in partitions in turn.
func (l consumeLoad) fillTransactions(ctx context.Context, b *bed, topic string) (visible int, err error) {
	const producers = 16
	each := max(l.records(b)/l.perTxn/producers, 1)
	if l.aborted > 0 {
		each = (each + l.aborted - 1) / l.aborted * l.aborted
	}
	failures := make([]error, producers)
	var group sync.WaitGroup
	for i := range producers {
		group.Go(func() { failures[i] = l.fillOne(ctx, b, topic, i, each) })
	}
	group.Wait()
	txns := each * producers
	if l.aborted > 0 {
		txns -= txns / l.aborted
	}
	return txns * l.perTxn, errors.Join(failures...)
}

func (l consumeLoad) fillOne(ctx context.Context, b *bed, topic string, i, txns int) error {
	p := produceLoad{size: consumeSize, acks: kgo.AllISRAcks(), codec: kgo.NoCompression()}
	cl, err := kgo.NewClient(append(p.options(b.address, topic), kgo.TransactionalID(fmt.Sprint(topic, i)))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for k := range txns {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		if err := writeAll(ctx, cl, l.perTxn); err != nil {
			return err
		}
		end := kgo.TransactionEndTry(l.aborted == 0 || (k+1)%l.aborted != 0)
		if err := cl.EndTransaction(ctx, end); err != nil {
			return err
		}
	}
	return nil
}

func consumeLoads() []load {
	gib := consumeLoad{bytes: 1 << 30, partitions: 12}
	with := func(change func(*consumeLoad)) consumeLoad {
		l := gib
		change(&l)
		return l
	}
	cheap := []goal{{figure: cpuPer, most: 1}}
	limited := []goal{{figure: cpuPer, most: 1}, {figure: cpuPer, most: 1.2, than: "limit"}}
	txns := func(aborted int) consumeLoad {
		return consumeLoad{bytes: 400 << 20, partitions: 12, committed: true, perTxn: 100, aborted: aborted}
	}
	return []load{
		{name: "consume/1KiB", about: "1 KiB records from page cache, 12 partitions, 1 consumer", run: gib.run,
			limit: limitBytes("send", gib.bytes), goals: limited},
		{name: "consume/committed", about: "the same, read_committed", run: with(func(l *consumeLoad) { l.committed = true }).run, goals: cheap},
		{name: "consume/transactions", about: "read_committed, transactions of 100 records, none aborted", run: txns(0).run, goals: cheap},
		{name: "consume/aborted1%", about: "the same, 1 % of them aborted", run: txns(100).run, goals: cheap},
		{name: "consume/aborted50%", about: "the same, half of them aborted", run: txns(2).run, goals: cheap},
		{name: "consume/1partition", about: "1 KiB records, 1 partition", run: with(func(l *consumeLoad) { l.partitions = 1 }).run, goals: cheap},
		{name: "consume/100partitions", about: "1 KiB records, 100 partitions", run: with(func(l *consumeLoad) { l.partitions = 100 }).run, goals: cheap},
		{name: "consume/10", about: "10 consumers, 12 partitions", run: with(func(l *consumeLoad) { l.consumers, l.bytes = 10, 200<<20 }).run, goals: cheap},
		{name: "consume/50", about: "50 consumers, 12 partitions", run: with(func(l *consumeLoad) { l.consumers, l.bytes = 50, 40<<20 }).run, goals: cheap},
	}
}
