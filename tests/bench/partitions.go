package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

const (
	crowdTopic   = "bench-crowd"
	recordsMax   = 10000 // topics and partitions that one request creates at most, as in Kafka
	perProduce   = 500   // partitions in one produce request
	patience     = 5 * time.Minute
	settleWithin = 3 * time.Second // what a broker gets at least to be idle after work
)

// crowd measures a broker with many partitions.
type crowd struct {
	options
	dir     string
	command []string
	process *process // nil if only its address is known
	client  *protocol.Client
	writer  *protocol.Client    // another connection, for records
	names   []string            // of the topics
	ids     map[string][16]byte // theirs
	base    int64               // KiB resident before there were partitions
}

// partitions prints all figures, one a line.
func (o options) partitions(ctx context.Context, command []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &crowd{options: o, command: command, ids: map[string][16]byte{}}
	c.per = cmp.Or(c.per, c.n)
	for i := range (c.n + c.per - 1) / c.per {
		c.names = append(c.names, fmt.Sprintf("%s-%d-%d", crowdTopic, time.Now().Unix(), i))
	}
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

// timed prints how long something takes, and the broker's processor time meanwhile.
func (c *crowd) timed(what string, do func() error) error {
	process := c.process
	before, _ := process.cpu()
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took := time.Since(began)
	tell(what, float64(took.Microseconds())/1000, "ms")
	if after, err := process.cpu(); err == nil {
		tell("  processor", float64((after - before).Milliseconds()), "ms")
	}
	return nil
}

// start runs the command, and waits until it has answered.
func (c *crowd) start(ctx context.Context, what string) error {
	return c.timed(what, func() (err error) {
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
	if err := c.scrape(ctx); err != nil {
		return err
	}
	if err := c.poll(ctx); err != nil {
		return err
	}
	if err := c.timed("a first record into each partition", func() error { return c.fill(ctx) }); err != nil {
		return err
	}
	if err := c.timed("a second one", func() error { return c.fill(ctx) }); err != nil {
		return err
	}
	return c.rest(ctx, "idle, with records")
}

// create makes the partitions, and measures until the last of them has taken a record. More than recordsMax in one request have to be refused.
func (c *crowd) create(ctx context.Context) error {
	excess := kmsg.CreateTopicsRequestTopic{Topic: crowdTopic + "-excess", NumPartitions: recordsMax, ReplicationFactor: -1}
	if err := c.createTopics(ctx, excess); !errors.Is(err, kerr.PolicyViolation) {
		return fmt.Errorf("%d partitions in one request: %v, want POLICY_VIOLATION", recordsMax, err)
	}
	began := time.Now()
	err := c.timed(fmt.Sprintf("%d topics of %d partitions, to the answers", len(c.names), min(c.per, recordsMax-1)), func() error {
		size := max(1, recordsMax/(c.per+1))
		for names := range slices.Chunk(c.names, size) {
			topics := make([]kmsg.CreateTopicsRequestTopic, len(names))
			for i, name := range names {
				topics[i] = kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: int32(min(c.per, recordsMax-1)), ReplicationFactor: -1}
			}
			if err := c.createTopics(ctx, topics...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.produceRetry(ctx, []int{min(c.n, recordsMax-1) - 1}); err != nil {
		return err
	}
	tell("and to a record in the last of them", float64(time.Since(began).Milliseconds()), "ms")
	if c.per < recordsMax {
		return nil
	}
	return c.timed(fmt.Sprintf("%d more", c.per-recordsMax+1), func() error {
		req := &kmsg.CreatePartitionsRequest{Version: 3, TimeoutMillis: int32(patience.Milliseconds()),
			Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: c.names[0], Count: int32(c.per)}}}
		resp, err := c.client.Request(ctx, req)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode); err != nil {
			return err
		}
		return c.produceRetry(ctx, []int{c.n - 1})
	})
}

func (c *crowd) createTopics(ctx context.Context, topics ...kmsg.CreateTopicsRequestTopic) error {
	req := &kmsg.CreateTopicsRequest{Version: 7, TimeoutMillis: int32(patience.Milliseconds()), Topics: topics}
	resp, err := c.client.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		c.ids[t.Topic] = t.TopicID
	}
	return nil
}

// remove deletes the topics again from a broker that goes on.
func (c *crowd) remove(ctx context.Context) error {
	req := &kmsg.DeleteTopicsRequest{Version: 6, TimeoutMillis: int32(patience.Milliseconds())}
	for i := range c.names {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &c.names[i]})
	}
	return c.timed("deletion", func() error {
		resp, err := c.client.Request(ctx, req)
		if err != nil {
			return err
		}
		for _, t := range resp.(*kmsg.DeleteTopicsResponse).Topics {
			err = errors.Join(err, kerr.ErrorForCode(t.ErrorCode))
		}
		return err
	})
}

// rest measures what the partitions cost while nothing happens.
func (c *crowd) rest(ctx context.Context, what string) error {
	if c.process == nil {
		return nil
	}
	began := time.Now()
	if err := pause(ctx, settleWithin); err != nil {
		return err
	}
	for {
		if percent, err := c.process.load(ctx, time.Second); err != nil || percent < 1 {
			break
		}
	}
	tell(what+": after", time.Since(began).Seconds(), "s")
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
	err := c.timed("metadata of all topics", func() (err error) {
		resp, err = c.client.Request(ctx, &kmsg.MetadataRequest{Version: 12})
		return err
	})
	if err != nil {
		return err
	}
	tell("its size", float64(len(resp.AppendTo(nil)))/1024, "KiB")
	return nil
}

// scrape reads the metrics, and measures the memory that a broker has for them.
func (c *crowd) scrape(ctx context.Context) error {
	if c.metrics == "" {
		return nil
	}
	var size int64
	err := c.timed("metrics", func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.metrics, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		size, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	if err != nil {
		return err
	}
	tell("their size", float64(size)/1024, "KiB")
	return c.rest(ctx, "idle, after them")
}

// restarts measures stops and starts.
func (c *crowd) restarts(ctx context.Context) error {
	if err := c.stop("clean stop, with new records everywhere"); err != nil {
		return err
	}
	if err := c.startToRecord(ctx, "start after it"); err != nil {
		return err
	}
	if err := c.rest(ctx, "idle after the start"); err != nil {
		return err
	}
	if err := c.stop("clean stop, with nothing new"); err != nil {
		return err
	}
	if err := c.startToRecord(ctx, "start after it"); err != nil {
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
	if err := c.rest(ctx, "idle after the kill"); err != nil {
		return err
	}
	return c.stop("clean stop")
}

func (c *crowd) stop(what string) error {
	return c.timed(what, func() error {
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
	if err := c.produceRetry(ctx, []int{c.n - 1}); err != nil {
		return err
	}
	tell("and to a record in the last partition", float64(time.Since(began).Milliseconds()), "ms")
	return nil
}

// fill puts a record into each partition.
func (c *crowd) fill(ctx context.Context) error {
	for from := 0; from < c.n; from += perProduce {
		numbers := make([]int, 0, perProduce)
		for i := from; i < min(c.n, from+perProduce); i++ {
			numbers = append(numbers, i)
		}
		if err := c.produceRetry(ctx, numbers); err != nil {
			return err
		}
	}
	return nil
}

// produceRetry tries until all partitions have taken their record: a new partition may not have its leader yet.
func (c *crowd) produceRetry(ctx context.Context, numbers []int) error {
	for {
		err := c.produce(ctx, numbers)
		var code *kerr.Error
		if err == nil || !errors.As(err, &code) || !code.Retriable {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// partition gives the i-th of all partitions.
func (c *crowd) partition(i int) (topic string, index int32) {
	return c.names[i/c.per], int32(i % c.per)
}

func (c *crowd) produce(ctx context.Context, numbers []int) error {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 60000
	for _, i := range numbers {
		b, err := record()
		if err != nil {
			return err
		}
		name, index := c.partition(i)
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != name {
			req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: name})
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: index, Records: b})
	}
	resp, err := c.writer.Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// record is a batch of one small record.
func record() (protocol.Batch, error) {
	return protocol.AppendBatch(nil, protocol.BatchSpec{BaseTimestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]protocol.Record{{Value: []byte(strings.Repeat("value ", 4))}})
}
