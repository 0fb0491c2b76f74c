package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (o options) filesTopic() string  { return o.prefix + "-files" }  // key: file, value: its number of pieces
func (o options) chunksTopic() string { return o.prefix + "-chunks" } // value: a piece of text
func (o options) deltasTopic() string { return o.prefix + "-deltas" } // key: word, value: how often in one batch of pieces
func (o options) countsTopic() string { return o.prefix + "-counts" } // key: word, value: how often so far

// common are the options of every client here.
func (o options) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(o.brokers, ",")...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}
}

// transactional are the options of a client that writes in transactions. The id is the same at each start: it is what lets
// the broker end what an earlier run left open, and shut that run out should it still be alive.
func (o options) transactional(id string) []kgo.Opt {
	return append(o.common(),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(30*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
}

// grouped are the options of a client that reads a topic as one of a group and writes in transactions.
func (o options) grouped(id, group, topic string) []kgo.Opt {
	return append(o.transactional(id),
		kgo.ConsumerGroup(o.prefix+"-"+group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10*time.Second),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
}

func (o options) createTopics(ctx context.Context) error {
	return o.admin(func(adm *kadm.Client) error {
		for _, topic := range []string{o.chunksTopic(), o.deltasTopic(), o.countsTopic(), o.filesTopic()} {
			partitions, configs := int32(o.partitions), map[string]*string{}
			switch topic {
			case o.filesTopic():
				partitions = 1
			case o.countsTopic():
				configs["cleanup.policy"] = kadm.StringPtr("compact") // only the newest total of a word matters
			}
			resp, err := adm.CreateTopic(ctx, partitions, 1, configs, topic)
			if err != nil && !strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS") {
				return fmt.Errorf("create %s: %w %s", topic, err, resp.ErrMessage)
			}
		}
		return nil
	})
}

func (o options) deleteTopics(ctx context.Context) error {
	return o.admin(func(adm *kadm.Client) error {
		if _, err := adm.DeleteGroups(ctx, o.prefix+"-split", o.prefix+"-add"); err != nil {
			return err
		}
		resp, err := adm.DeleteTopics(ctx, o.chunksTopic(), o.deltasTopic(), o.countsTopic(), o.filesTopic())
		if err != nil {
			return err
		}
		return resp.Error()
	})
}

func (o options) admin(do func(*kadm.Client) error) error {
	cl, err := kgo.NewClient(o.common()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return do(kadm.NewClient(cl))
}

// partitionsOf is the number of partitions of a topic.
func partitionsOf(ctx context.Context, cl *kgo.Client, topic string) (int, error) {
	topics, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		return 0, err
	}
	t := topics[topic]
	return len(t.Partitions), t.Err
}

// readTo reads the committed records of partitions up to where they end now, in order by partition.
func (o options) readTo(ctx context.Context, topic string, only []int32, each func(*kgo.Record)) error {
	var ends kadm.ListedOffsets
	if err := o.admin(func(adm *kadm.Client) (err error) {
		if ends, err = adm.ListCommittedOffsets(ctx, topic); err == nil {
			err = ends.Error()
		}
		return err
	}); err != nil {
		return err
	}
	from := map[int32]kgo.Offset{}
	ends.Each(func(l kadm.ListedOffset) {
		if l.Offset > 0 && wanted(only, l.Partition) {
			from[l.Partition] = kgo.NewOffset().AtStart()
		}
	})
	if len(from) == 0 {
		return nil
	}
	// A partition ends with the marker of a transaction, and markers are only seen if they are asked for.
	cl, err := kgo.NewClient(append(o.common(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords())...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(from) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				each(r)
			}
			if r.Offset >= ends[topic][r.Partition].Offset-1 {
				delete(from, r.Partition)
			}
		})
	}
	return nil
}

// wanted tells if a partition is one of those asked for; nil asks for all.
func wanted(only []int32, partition int32) bool {
	if only == nil {
		return true
	}
	for _, p := range only {
		if p == partition {
			return true
		}
	}
	return false
}
