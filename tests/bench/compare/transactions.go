package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// txnLoad is transactions, back to back for each producer.
type txnLoad struct {
	producers  int
	partitions int           // of the topic; every transaction writes to each of them if spread is set
	records    int           // in a transaction
	during     time.Duration // at full scale
	spread     bool
}

func (l txnLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, l.partitions)
	if err != nil {
		return result{}, err
	}
	clients := make([]*kgo.Client, l.producers)
	for i := range clients {
		clients[i], err = kgo.NewClient(kgo.SeedBrokers(b.address), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(fmt.Sprint(topic, i)),
			kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return result{}, err
		}
		defer clients[i].Close()
		if err := l.one(ctx, clients[i], i); err != nil {
			return result{}, err
		}
	}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	until := time.Now().Add(time.Duration(float64(l.during) * b.scale))
	latencies, failures := make([][]time.Duration, l.producers), make([]error, l.producers)
	var group sync.WaitGroup
	for i, cl := range clients {
		group.Go(func() {
			for now := time.Now(); now.Before(until) && failures[i] == nil; {
				failures[i] = l.one(ctx, cl, i)
				done := time.Now()
				latencies[i] = append(latencies[i], done.Sub(now))
				now = done
			}
		})
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	r := result{unit: "commit"}
	for _, list := range latencies {
		r.latencies = append(r.latencies, list...)
	}
	r.work = float64(len(r.latencies))
	return r, b.deleteTopic(ctx, topic)
}

// one is one transaction of the i-th producer.
func (l txnLoad) one(ctx context.Context, cl *kgo.Client, i int) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	records := make([]*kgo.Record, l.records)
	for k := range records {
		records[k] = &kgo.Record{Value: txnValue, Partition: int32(i % l.partitions)}
		if l.spread {
			records[k].Partition = int32(k % l.partitions)
		}
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

var txnValue = values(100)[0]

// pipeLoad is a word moved from one topic to another, exactly once: consume, produce and commit the offsets in a transaction each.
type pipeLoad struct {
	perTxn int
	during time.Duration
}

func (l pipeLoad) run(ctx context.Context, b *bed) (result, error) {
	in, err := b.createTopic(ctx, 1)
	if err != nil {
		return result{}, err
	}
	out, err := b.createTopic(ctx, 1)
	if err != nil {
		return result{}, err
	}
	p := produceLoad{size: 100, acks: kgo.AllISRAcks(), codec: kgo.NoCompression()}
	feed, err := kgo.NewClient(p.options(b.address, in)...)
	if err != nil {
		return result{}, err
	}
	defer feed.Close()
	if err := writeAll(ctx, feed, 100000); err != nil {
		return result{}, err
	}
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(b.address), kgo.TransactionalID(out), kgo.ConsumerGroup(out), kgo.ConsumeTopics(in),
		kgo.DefaultProduceTopic(out), kgo.ProducerLinger(0), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	var r result
	r.unit = "commit"
	began := time.Time{}
	for during := time.Duration(float64(l.during) * b.scale); began.IsZero() || time.Since(began) < during; {
		now := time.Now()
		if err := l.one(ctx, s); err != nil {
			return result{}, err
		}
		if began.IsZero() { // the first has joined the group
			if err := b.begin(); err != nil {
				return result{}, err
			}
			began = time.Now()
			continue
		}
		r.latencies = append(r.latencies, time.Since(now))
	}
	if err := b.end(); err != nil {
		return result{}, err
	}
	r.work = float64(len(r.latencies))
	return r, errors.Join(b.deleteTopic(ctx, in), b.deleteTopic(ctx, out))
}

func (l pipeLoad) one(ctx context.Context, s *kgo.GroupTransactSession) error {
	fetches := s.PollRecords(ctx, l.perTxn)
	if err := fetches.Err(); err != nil {
		return err
	}
	if err := s.Begin(); err != nil {
		return err
	}
	var list []*kgo.Record
	fetches.EachRecord(func(r *kgo.Record) { list = append(list, &kgo.Record{Value: r.Value}) })
	if err := s.ProduceSync(ctx, list...).FirstErr(); err != nil {
		return err
	}
	committed, err := s.End(ctx, kgo.TryCommit)
	if err == nil && !committed {
		err = errors.New("transaction was not committed")
	}
	return err
}

func txnLoads() []load {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return []load{
		{name: "transactions/1", about: "1 producer, 1 record each", run: txnLoad{producers: 1, partitions: 1, records: 1, during: seconds(5)}.run,
			goals: []goal{{figure: rate, least: 20}}},
		{name: "transactions/1x10", about: "1 producer, 10 records on 10 partitions each", run: txnLoad{producers: 1, partitions: 10, records: 10, during: seconds(5), spread: true}.run,
			goals: []goal{{figure: rate, least: 15}}},
		{name: "transactions/32", about: "32 producers on 32 partitions, 1 record each", run: txnLoad{producers: 32, partitions: 32, records: 1, during: seconds(5)}.run,
			goals: []goal{{figure: rate, least: 3}, {figure: cpuPer, most: .3}}},
		{name: "transactions/50", about: "50 producers on 10 partitions, 1 record each", run: txnLoad{producers: 50, partitions: 10, records: 1, during: seconds(5)}.run},
		{name: "transactions/1000", about: "1 producer, 1,000 records each", run: txnLoad{producers: 1, partitions: 1, records: 1000, during: seconds(5)}.run,
			goals: []goal{{figure: rate, least: 5}}},
		{name: "transactions/pipe", about: "consume, produce and commit offsets, 10 records each", run: pipeLoad{perTxn: 10, during: seconds(5)}.run},
	}
}
