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
	req := &kmsg.FetchRequest{Version: 15, MaxWaitMillis: 1, MinBytes: 1, MaxBytes: 1 << 26}
	topic := kmsg.FetchRequestTopic{TopicID: c.id}
	for i := range c.n {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), 0, 1<<20
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = []kmsg.FetchRequestTopic{topic}
	var first *kmsg.FetchResponse
	err := timed("a fetch session of all partitions", func() (err error) {
		first, err = c.fetch(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	next := &kmsg.FetchRequest{Version: 15, MaxWaitMillis: int32(pollWait.Milliseconds()), MinBytes: 1, MaxBytes: 1 << 26, SessionID: first.SessionID, SessionEpoch: 1}
	// What had records goes to its end.
	for _, t := range first.Topics {
		skip := kmsg.FetchRequestTopic{TopicID: c.id}
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
	return timed("a record to its reader", func() error {
		done := make(chan error, 1)
		go func() { done <- c.produceRetry(ctx, []int32{int32(c.n / 2)}) }()
		return errors.Join(step(), <-done)
	})
}

func (c *crowd) fetch(ctx context.Context, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	resp, err := c.client.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	f := resp.(*kmsg.FetchResponse)
	return f, kerr.ErrorForCode(f.ErrorCode)
}
