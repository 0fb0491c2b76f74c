package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// latencyLoad is records at a steady rate, from the call that produces one to the poll that has it.
type latencyLoad struct {
	perSecond int
	seconds   int // at full scale
}

func (l latencyLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, 1)
	if err != nil {
		return result{}, err
	}
	p := produceLoad{size: 100, acks: kgo.AllISRAcks(), codec: kgo.NoCompression()}
	producer, err := kgo.NewClient(p.options(b.address, topic)...)
	if err != nil {
		return result{}, err
	}
	defer producer.Close()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return result{}, err
	}
	defer consumer.Close()
	origin := time.Now()
	const warm = 200
	if err := l.produce(ctx, producer, origin, warm); err != nil {
		return result{}, err
	}
	if err := consume(ctx, consumer, warm); err != nil {
		return result{}, err
	}
	n := b.n(l.seconds * l.perSecond)
	if err := b.begin(); err != nil {
		return result{}, err
	}
	sent := make(chan error, 1)
	go func() { sent <- l.produce(ctx, producer, origin, n) }()
	r := result{work: float64(n), unit: "record", latencies: make([]time.Duration, 0, n)}
	for len(r.latencies) < n {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return result{}, errors.Join(err, <-sent)
		}
		now := time.Since(origin)
		fetches.EachRecord(func(rec *kgo.Record) {
			r.latencies = append(r.latencies, now-time.Duration(binary.BigEndian.Uint64(rec.Value)))
		})
	}
	if err := errors.Join(<-sent, b.end()); err != nil {
		return result{}, err
	}
	return r, b.deleteTopic(ctx, topic)
}

// produce sends n records at the rate, with when they were sent in them.
func (l latencyLoad) produce(ctx context.Context, cl *kgo.Client, origin time.Time, n int) error {
	var failure error
	err := l.pace(ctx, n, func(due int) error {
		for range due {
			value := make([]byte, 100)
			binary.BigEndian.PutUint64(value, uint64(time.Since(origin)))
			cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) { failure = errors.Join(failure, err) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(cl.Flush(ctx), failure)
}

// pace has n records sent at the rate, those that are due at a time.
func (l latencyLoad) pace(ctx context.Context, n int, send func(due int) error) error {
	interval := max(time.Second/time.Duration(l.perSecond), time.Millisecond/2)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	began := time.Now()
	for sent := 0; sent < n; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		due := min(int(time.Since(began).Seconds()*float64(l.perSecond)), n) - sent
		if err := send(due); err != nil {
			return err
		}
		sent += due
	}
	return nil
}

func latencyLoads() (loads []load) {
	for _, perSecond := range []int{100, 1000, 20000} {
		records := latencyLoad{perSecond: perSecond, seconds: 10}
		l := load{name: fmt.Sprint("latency/", perSecond), about: fmt.Sprintf("100 B records, %d/s, end to end", perSecond),
			run: records.run, limit: records.limit()}
		if perSecond == 1000 {
			l.goals = []goal{{figure: cpuPer, most: .3}, {figure: p50, most: .7}, {figure: p99, most: .33}}
		}
		loads = append(loads, l)
	}
	return loads
}
