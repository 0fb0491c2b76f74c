package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// singleLoad is records sent one at a time by each connection, which waits for the answer (acks=all) before the next.
type singleLoad struct {
	connections, partitions int
	records                 int // in all, at full scale
}

func (l singleLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, l.partitions)
	if err != nil {
		return result{}, err
	}
	r, err := l.send(ctx, b, topic)
	if err != nil {
		return result{}, err
	}
	return r, b.deleteTopic(ctx, topic)
}

// send sends the records to whatever answers such requests.
func (l singleLoad) send(ctx context.Context, b *bed, topic string) (result, error) {
	var err error
	value := values(100)[0]
	wires, frames := make([]*wire, l.connections), make([][]byte, l.connections)
	for i := range wires {
		if wires[i], err = dial(ctx, b.address); err != nil {
			return result{}, err
		}
		defer wires[i].close()
		if frames[i], err = produceFrame(topic, int32(i%l.partitions), -1, value, 1); err != nil {
			return result{}, err
		}
	}
	for i := range wires {
		if _, err := produceOne(wires[i], frames[i], nil, 20); err != nil {
			return result{}, err
		}
	}
	each := max(b.n(l.records)/l.connections, 1)
	latencies, failures := make([][]time.Duration, l.connections), make([]error, l.connections)
	for i := range latencies {
		latencies[i] = make([]time.Duration, 0, each)
	}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	var group sync.WaitGroup
	for i := range wires {
		group.Go(func() { latencies[i], failures[i] = produceOne(wires[i], frames[i], latencies[i], each) })
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	r := result{work: float64(each * l.connections), unit: "ack"}
	for _, list := range latencies {
		r.latencies = append(r.latencies, list...)
	}
	return r, nil
}

// limit is a process that answers the same requests, see limitrecords.go.
func (l singleLoad) limit(mode string) *limit {
	return &limit{mode: mode, connections: l.connections, drive: func(ctx context.Context, b *bed) (result, error) { return l.send(ctx, b, limitTopic) }}
}

// produceOne sends the frame n times, and adds how long each took if latencies is not nil.
func produceOne(w *wire, frame []byte, latencies []time.Duration, n int) ([]time.Duration, error) {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = produceVersion
	for range n {
		began := time.Now()
		if err := w.send(frame); err != nil {
			return nil, err
		}
		answer, err := w.receive()
		if err != nil {
			return nil, err
		}
		if latencies != nil {
			latencies = append(latencies, time.Since(began))
		}
		if err := decode(answer, resp); err != nil {
			return nil, err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

func singleLoads() []load {
	one := singleLoad{connections: 1, partitions: 1, records: 40000}
	many := singleLoad{connections: 64, partitions: 16, records: 100000}
	return []load{
		{
			name: "single/1", about: "100 B records one at a time, acks=all, 1 connection",
			run: one.run, limit: one.limit("answer"),
			goals: []goal{{figure: cpuPer, most: .3}, {figure: rate, least: 1.5}, {figure: p999, most: .3}},
		}, {
			name: "single/64", about: "the same by 64 connections on 16 partitions",
			run: many.run, limit: many.limit("answer"),
			goals: []goal{{figure: cpuPer, most: .3}, {figure: rate, least: 2}, {figure: p99, most: .3}},
		},
	}
}

// flushLoads have every record on disk before its answer.
func flushLoads() []load {
	flush := []string{"log.flush.interval.messages=1"}
	one := singleLoad{connections: 1, partitions: 1, records: 3000}
	many := singleLoad{connections: 16, partitions: 16, records: 8000}
	return []load{
		{
			name: "flush/1", about: "flush.messages=1, one at a time, 1 connection", settings: flush,
			run: one.run, limit: one.limit("flush"),
			goals: []goal{{figure: cpuPer, most: .2}},
		}, {
			name: "flush/16", about: "flush.messages=1, 16 connections on 16 partitions", settings: flush,
			run: many.run, limit: many.limit("flush"),
			goals: []goal{{figure: cpuPer, most: .2}, {figure: rate, least: 4}},
		},
	}
}
