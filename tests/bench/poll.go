package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pollWait is how long a fetch waits for records.
const pollWait = 500 * time.Millisecond

// poll reads all partitions in one fetch session: what its begin costs, what waiting costs while nothing comes, and how long a record takes.
func (c *crowd) poll(ctx context.Context) error {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 15, 1, 1, 1<<26, 0
	for i := range c.n {
		p := kmsg.NewFetchRequestTopicPartition()
		name, index := c.partition(i)
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = index, 0, 1<<20
		if index == 0 {
			req.Topics = append(req.Topics, kmsg.FetchRequestTopic{TopicID: c.ids[name]})
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	var first *kmsg.FetchResponse
	err := c.timed("a fetch session of all partitions", func() (err error) {
		first, err = c.fetch(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.MaxWaitMillis, next.MinBytes, next.MaxBytes = 15, int32(pollWait.Milliseconds()), 1, 1<<26
	next.SessionID, next.SessionEpoch = first.SessionID, 1
	// What had records goes to its end.
	for _, t := range first.Topics {
		skip := kmsg.FetchRequestTopic{TopicID: t.TopicID}
		for _, p := range t.Partitions {
			if len(p.RecordBatches) > 0 {
				s := kmsg.NewFetchRequestTopicPartition()
				s.Partition, s.FetchOffset, s.PartitionMaxBytes = p.Partition, p.HighWatermark, 1<<20
				skip.Partitions = append(skip.Partitions, s)
			}
		}
		next.Topics = append(next.Topics, skip)
	}
	return c.follow(ctx, next)
}

// follow goes on with a session whose partitions have all been read.
func (c *crowd) follow(ctx context.Context, req *kmsg.FetchRequest) error {
	step := func() error {
		_, err := c.fetch(ctx, req)
		req.SessionEpoch++
		req.Topics = nil
		return err
	}
	if err := step(); err != nil {
		return err
	}
	if c.process != nil {
		before, err := c.process.cpu()
		if err != nil {
			return err
		}
		began := time.Now()
		for time.Since(began) < c.idle {
			if err := step(); err != nil {
				return err
			}
		}
		after, err := c.process.cpu()
		if err != nil {
			return err
		}
		tell("processor while it waits", 100*(after-before).Seconds()/time.Since(began).Seconds(), "%")
	}
	return c.timed("a record to its reader", func() error {
		done := make(chan error, 1)
		go func() { done <- c.produceRetry(ctx, []int{c.n / 2}) }()
		return errors.Join(step(), <-done)
	})
}

func (c *crowd) fetch(ctx context.Context, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	resp, err := c.client.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	f := resp.(*kmsg.FetchResponse)
	for _, t := range f.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
		}
	}
	return f, kerr.ErrorForCode(f.ErrorCode)
}
