package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

const (
	crowdTopic   = "bench-crowd"
	perRequest   = 9999 // the most partitions that one request creates, as in Kafka
	perProduce   = 500  // partitions in one produce request
	patience     = 5 * time.Minute
	settleWithin = 3 * time.Second // what a broker gets to be idle after work
)

// crowd measures a broker with many partitions.
type crowd struct {
	options
	dir     string
	command []string
	process *process // nil if only its address is known
	client  *protocol.Client
	writer  *protocol.Client // another connection, for records
	topic   string
	id      [16]byte
	base    int64 // KiB resident before there were partitions
}

// partitions prints all figures, one a line.
func (o options) partitions(ctx context.Context, command []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &crowd{options: o, command: command, topic: fmt.Sprint(crowdTopic, "-", time.Now().Unix())}
	if len(command) == 0 {
		if o.pid > 0 {
			c.process = &process{pid: o.pid}
		}
		if err := c.connect(ctx); err != nil {
			return err
		}
		defer c.hangUp()
		defer func() { err = errors.Join(err, c.remove(ctx)) }()
		return c.live(ctx)
	}
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
	if err := c.live(ctx); err != nil {
		return err
	}
	return c.restarts(ctx)
}

// tell prints a figure.
func tell(what string, value float64, unit string) {
	fmt.Printf("%-52s %10.1f %s\n", what, value, unit)
}

// timed prints how long something takes.
func timed(what string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	tell(what, float64(time.Since(began).Microseconds())/1000, "ms")
	return nil
}

// start runs the command, and waits until it has answered.
func (c *crowd) start(ctx context.Context, what string) error {
	return timed(what, func() (err error) {
		if c.process, err = launch(c.command, c.dir); err != nil {
			return err
		}
		return c.connect(ctx)
	})
}

// connect waits until the broker answers.
func (c *crowd) connect(ctx context.Context) error {
	for {
		err := c.tryConnect(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *crowd) tryConnect(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.broker)
	if err != nil {
		return err
	}
	cl := protocol.NewClient(conn, "bench")
	if _, err := cl.Request(ctx, kmsg.NewPtrApiVersionsRequest()); err != nil {
		return errors.Join(err, cl.Close())
	}
	if conn, err = new(net.Dialer).DialContext(ctx, "tcp", c.broker); err != nil {
		return errors.Join(err, cl.Close())
	}
	c.client, c.writer = cl, protocol.NewClient(conn, "bench")
	return nil
}

// hangUp closes the connections, whose broker may be gone.
func (c *crowd) hangUp() {
	if c.client != nil {
		c.client.Close()
		c.writer.Close()
	}
}

// live is what is measured on a running broker.
func (c *crowd) live(ctx context.Context) error {
	if c.process != nil {
		if err := pause(ctx, settleWithin); err != nil {
			return err
		}
		var err error
		if c.base, err = c.process.resident(); err != nil {
			return err
		}
	}
	if err := c.create(ctx); err != nil {
		return err
	}
	if err := c.rest(ctx, "idle"); err != nil {
		return err
	}
	if err := c.metadata(ctx); err != nil {
		return err
	}
	if err := c.poll(ctx); err != nil {
		return err
	}
	if err := timed("a first record into each partition", func() error { return c.fill(ctx) }); err != nil {
		return err
	}
	if err := timed("a second one", func() error { return c.fill(ctx) }); err != nil {
		return err
	}
	return c.rest(ctx, "idle, with records")
}

// create makes the partitions, and measures until the last of them has taken a record.
func (c *crowd) create(ctx context.Context) error {
	first := min(c.n, perRequest)
	began := time.Now()
	err := timed(fmt.Sprintf("%d partitions, to the answer", first), func() error {
		t := kmsg.CreateTopicsRequestTopic{Topic: c.topic, NumPartitions: int32(first), ReplicationFactor: -1}
		req := &kmsg.CreateTopicsRequest{Version: 7, TimeoutMillis: int32(patience.Milliseconds()), Topics: []kmsg.CreateTopicsRequestTopic{t}}
		resp, err := c.client.Request(ctx, req)
		if err != nil {
			return err
		}
		created := resp.(*kmsg.CreateTopicsResponse).Topics[0]
		c.id = created.TopicID
		return kerr.ErrorForCode(created.ErrorCode)
	})
	if err != nil {
		return err
	}
	if err := c.produceRetry(ctx, []int32{int32(first - 1)}); err != nil {
		return err
	}
	tell("and to a record in the last of them", float64(time.Since(began).Milliseconds()), "ms")
	if c.n == first {
		return nil
	}
	return timed(fmt.Sprintf("%d more", c.n-first), func() error {
		req := &kmsg.CreatePartitionsRequest{Version: 3, TimeoutMillis: int32(patience.Milliseconds()),
			Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: c.topic, Count: int32(c.n)}}}
		resp, err := c.client.Request(ctx, req)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode); err != nil {
			return err
		}
		return c.produceRetry(ctx, []int32{int32(c.n - 1)})
	})
}

// remove deletes the topic again from a broker that goes on.
func (c *crowd) remove(ctx context.Context) error {
	req := &kmsg.DeleteTopicsRequest{Version: 6, TimeoutMillis: int32(patience.Milliseconds()), Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: &c.topic}}}
	return timed("deletion", func() error {
		resp, err := c.client.Request(ctx, req)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
	})
}

// rest measures what the partitions cost while nothing happens.
func (c *crowd) rest(ctx context.Context, what string) error {
	if c.process == nil {
		return nil
	}
	if err := pause(ctx, settleWithin); err != nil {
		return err
	}
	percent, err := c.process.load(ctx, c.idle)
	if err != nil {
		return err
	}
	kib, err := c.process.resident()
	if err != nil {
		return err
	}
	files, err := c.process.descriptors()
	if err != nil {
		return err
	}
	tell(what+": processor", percent, "%")
	tell(what+": resident memory", float64(kib)/1024, "MiB")
	tell(what+": of it, per partition", float64(kib-c.base)/float64(c.n), "KiB")
	tell(what+": file descriptors", float64(files), "")
	return nil
}

// metadata asks for everything.
func (c *crowd) metadata(ctx context.Context) error {
	var resp kmsg.Response
	err := timed("metadata of all topics", func() (err error) {
		resp, err = c.client.Request(ctx, &kmsg.MetadataRequest{Version: 12})
		return err
	})
	if err != nil {
		return err
	}
	tell("its size", float64(len(resp.AppendTo(nil)))/1024, "KiB")
	return nil
}

// restarts measures stops and starts.
func (c *crowd) restarts(ctx context.Context) error {
	if err := c.stop(); err != nil {
		return err
	}
	if err := c.startToRecord(ctx, "start after it"); err != nil {
		return err
	}
	if err := c.rest(ctx, "idle after the start"); err != nil {
		return err
	}
	if err := c.fill(ctx); err != nil {
		return err
	}
	c.process.end(syscall.SIGKILL)
	c.hangUp()
	if err := c.startToRecord(ctx, "start after a kill"); err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	return nil
}

func (c *crowd) stop() error {
	return timed("clean stop", func() error {
		c.process.end(syscall.SIGTERM)
		c.hangUp()
		return nil
	})
}

// startToRecord starts the broker, and measures until it has taken a record in the last partition.
func (c *crowd) startToRecord(ctx context.Context, what string) error {
	began := time.Now()
	if err := c.start(ctx, what+", to the first answer"); err != nil {
		return err
	}
	if err := c.produceRetry(ctx, []int32{int32(c.n - 1)}); err != nil {
		return err
	}
	tell("and to a record in the last partition", float64(time.Since(began).Milliseconds()), "ms")
	return nil
}

// fill puts a record into each partition.
func (c *crowd) fill(ctx context.Context) error {
	for from := 0; from < c.n; from += perProduce {
		indexes := make([]int32, 0, perProduce)
		for i := from; i < min(c.n, from+perProduce); i++ {
			indexes = append(indexes, int32(i))
		}
		if err := c.produceRetry(ctx, indexes); err != nil {
			return err
		}
	}
	return nil
}

// produceRetry tries until all partitions have taken their record: a new partition may not have its leader yet.
func (c *crowd) produceRetry(ctx context.Context, indexes []int32) error {
	for {
		err := c.produce(ctx, indexes)
		var code *kerr.Error
		if err == nil || !errors.As(err, &code) || !code.Retriable {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *crowd) produce(ctx context.Context, indexes []int32) error {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 60000
	topic := kmsg.ProduceRequestTopic{Topic: c.topic}
	for _, i := range indexes {
		b, err := record()
		if err != nil {
			return err
		}
		topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: i, Records: b})
	}
	req.Topics = []kmsg.ProduceRequestTopic{topic}
	resp, err := c.writer.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range resp.(*kmsg.ProduceResponse).Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// record is a batch of one small record.
func record() (protocol.Batch, error) {
	return protocol.AppendBatch(nil, protocol.BatchSpec{BaseTimestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]protocol.Record{{Value: []byte(strings.Repeat("value ", 4))}})
}
