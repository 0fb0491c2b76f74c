package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// acks has connections write one small record after the other, each to a partition of its own, and counts the acknowledgements.
func (o options) acks(ctx context.Context) (perSecond float64, err error) {
	topic := fmt.Sprint("bench-acks-", time.Now().UnixNano())
	if err := o.createFlushed(ctx, topic); err != nil {
		return 0, err
	}
	var count atomic.Int64
	began := time.Now()
	errs := make([]error, o.conns)
	var running sync.WaitGroup
	for i := range o.conns {
		running.Go(func() { errs[i] = o.ack(ctx, topic, int32(i), began.Add(o.during), &count) })
	}
	running.Wait()
	return float64(count.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func (o options) connect(ctx context.Context) (*protocol.Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.broker)
	if err != nil {
		return nil, err
	}
	return protocol.NewClient(conn, "bench"), nil
}

func (o options) createFlushed(ctx context.Context, topic string) (err error) {
	cl, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	t := kmsg.CreateTopicsRequestTopic{Topic: topic, NumPartitions: int32(o.conns), ReplicationFactor: -1}
	if o.flush > 0 {
		t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "flush.messages", Value: kmsg.StringPtr(fmt.Sprint(o.flush))}}
	}
	resp, err := cl.Request(ctx, &kmsg.CreateTopicsRequest{Version: 7, TimeoutMillis: 30000, Topics: []kmsg.CreateTopicsRequestTopic{t}})
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

// ack is one connection's part.
func (o options) ack(ctx context.Context, topic string, index int32, until time.Time, count *atomic.Int64) (err error) {
	cl, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	for time.Now().Before(until) {
		b, err := record()
		if err != nil {
			return err
		}
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 9, -1, 30000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: index, Records: b}}}}
		resp, err := cl.Request(ctx, req)
		if err != nil {
			return err
		}
		code := kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
		switch {
		case code == nil:
			count.Add(1)
		case !errors.Is(code, kerr.UnknownTopicOrPartition) && !errors.Is(code, kerr.NotLeaderForPartition): // not there yet
			return code
		}
	}
	return nil
}
