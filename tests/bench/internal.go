package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	internalClients = 4                // transactional ids, and groups
	cleanerPause    = 16 * time.Second // more than log.cleaner.backoff.ms
)

// internal measures what n transactions and n offset commits on few keys leave in the internal topics, and starts on that.
func (o options) internal(ctx context.Context, command []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, each := &crowd{options: o, command: command, ids: map[string][16]byte{}}, o.n/internalClients
	c.n, c.per, c.names = 1, 1, []string{"bench-internal"}
	if c.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	if err := prepared(o.prepare, c.dir); err != nil {
		return err
	}
	defer func() {
		c.process.end(syscall.SIGKILL)
		c.hangUp()
	}()
	if err := c.start(ctx, "start, empty, to the first answer"); err != nil {
		return err
	}
	if err := c.createTopics(ctx, kmsg.CreateTopicsRequestTopic{Topic: c.names[0], NumPartitions: 1, ReplicationFactor: -1}); err != nil {
		return err
	}
	if err := c.produceRetry(ctx, []int{0}); err != nil {
		return err
	}
	if err := c.timed(fmt.Sprintf("%d transactions", o.n), func() error { return c.each(func(i int) error { return c.transact(ctx, i, each) }) }); err != nil {
		return err
	}
	if err := c.timed(fmt.Sprintf("%d offset commits", o.n), func() error { return c.each(func(i int) error { return c.commitOffsets(ctx, i, each) }) }); err != nil {
		return err
	}
	if err := c.weigh("at once"); err != nil {
		return err
	}
	if err := pause(ctx, cleanerPause); err != nil {
		return err
	}
	if err := c.rest(ctx, "idle"); err != nil {
		return err
	}
	if err := c.weigh("cleaned"); err != nil {
		return err
	}
	for _, how := range []struct {
		signal syscall.Signal
		name   string
	}{{syscall.SIGKILL, "start after a kill"}, {syscall.SIGTERM, "start after a clean stop"}} {
		c.process.end(how.signal)
		c.hangUp()
		began := time.Now()
		if err := c.startToRecord(ctx, how.name); err != nil {
			return err
		}
		if err := c.each(func(i int) error { return c.loaded(ctx, i, int64(each-1)) }); err != nil {
			return err
		}
		tell("and to all coordinators that have something", float64(time.Since(began).Milliseconds()), "ms")
	}
	return nil
}

// each runs something for all clients at once.
func (c *crowd) each(do func(i int) error) error {
	errs := make([]error, internalClients)
	var running sync.WaitGroup
	for i := range internalClients {
		running.Go(func() { errs[i] = do(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func transactionalID(i int) string { return fmt.Sprint("bench-id-", i) }
func groupID(i int) string         { return fmt.Sprint("bench-group-", i) }

// transact commits n transactions of one record, one after the other.
func (c *crowd) transact(ctx context.Context, i, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.broker), kgo.TransactionalID(transactionalID(i)), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	for range n {
		if err := commitOne(ctx, cl, c.names[0]); err != nil {
			return err
		}
	}
	return nil
}

// commitOffsets commits the offset of one partition n times.
func (c *crowd) commitOffsets(ctx context.Context, i, n int) (err error) {
	cl, err := c.options.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	find := &kmsg.FindCoordinatorRequest{Version: 3, CoordinatorKey: groupID(i)}
	if _, err := cl.Request(ctx, find); err != nil { // makes the topic
		return err
	}
	req := &kmsg.OffsetCommitRequest{Version: 7, Group: groupID(i), Generation: -1}
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: c.names[0], Partitions: []kmsg.OffsetCommitRequestTopicPartition{part}}}
	for done := 0; done < n; {
		req.Topics[0].Partitions[0].Offset = int64(done)
		resp, err := cl.Request(ctx, req)
		if err != nil {
			return err
		}
		switch err := kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode); {
		case err == nil:
			done++
		case !kerr.IsRetriable(err):
			return err
		}
	}
	return nil
}

// loaded asks the coordinators of a client until they know what was there before; want is its group's offset.
func (c *crowd) loaded(ctx context.Context, i int, want int64) (err error) {
	cl, err := c.options.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	describe := &kmsg.DescribeTransactionsRequest{TransactionalIDs: []string{transactionalID(i)}}
	offsets := &kmsg.OffsetFetchRequest{Version: 6, Group: groupID(i),
		Topics: []kmsg.OffsetFetchRequestTopic{{Topic: c.names[0], Partitions: []int32{0}}}}
	for {
		txn, err := cl.Request(ctx, describe)
		if err != nil {
			return err
		}
		offset, err := cl.Request(ctx, offsets)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(txn.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode)
		if err == nil {
			err = kerr.ErrorForCode(offset.(*kmsg.OffsetFetchResponse).ErrorCode)
		}
		switch {
		case err == nil:
			if at := offset.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset; at != want {
				return fmt.Errorf("%s is at %d, want %d", groupID(i), at, want)
			}
			return nil
		case !kerr.IsRetriable(err):
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// weigh tells how large the partitions of the internal topics are.
func (c *crowd) weigh(when string) error {
	for _, topic := range []string{"__transaction_state", "__consumer_offsets"} {
		files, err := filepath.Glob(filepath.Join(c.dir, topic+"-*", "*.log"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no files of %s in %s: the broker's log.dirs must be {dir}", topic, c.dir)
		}
		segments, bytes := map[string]int{}, map[string]int64{} // by directory
		var most int
		var largest, all int64
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if info.Size() == 0 {
				continue
			}
			dir := filepath.Dir(name)
			segments[dir]++
			bytes[dir] += info.Size()
			most, largest, all = max(most, segments[dir]), max(largest, bytes[dir]), all+info.Size()
		}
		tell(strings.TrimLeft(topic, "_")+", "+when+": partitions with records", float64(len(bytes)), "")
		tell("  KiB in all of them", float64(all)/1024, "KiB")
		tell("  in the largest", float64(largest)/1024, "KiB")
		tell("  segments with records, at most", float64(most), "")
	}
	return nil
}
