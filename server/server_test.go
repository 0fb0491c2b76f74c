package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"oncelog/config"
	"oncelog/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLog is a handler that writes to the test's log.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// testConfig is the configuration of a lone broker in a directory of the test.
func testConfig(t testing.TB, dir string, settings ...string) *config.Broker {
	t.Helper()
	cfg, _, err := config.Load(config.LoadOptions{Set: append([]string{
		"listeners=PLAINTEXT://127.0.0.1:0",
		"log.dirs=" + dir,
		"node.id=1",
		"group.initial.rebalance.delay.ms=0",
		"offsets.topic.num.partitions=2",
		"transaction.state.log.num.partitions=2",
	}, settings...)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startServer runs a broker until the end of the test.
func startServer(t testing.TB, settings ...string) *Server {
	t.Helper()
	return startServerWith(t, Options{Config: testConfig(t, t.TempDir(), settings...)})
}

func startServerWith(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = testLog(t)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

func (s *Server) address() string { return s.Addrs()["PLAINTEXT"].String() }

// client is a connection that speaks frames. Its methods fail the test.
type client struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func dial(t testing.TB, s *Server) *client {
	t.Helper()
	conn, err := net.Dial("tcp", s.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn}
}

// send sends a request and gives its correlation id.
func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.next++
	c.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.next))
	return c.next
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads the next answer, which must be that of req.
func (c *client) receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	got, body := c.frame()
	if got != correlation {
		c.t.Fatalf("answer of request %d, want that of %d", got, correlation)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != 18 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func (c *client) frame() (correlation int32, body []byte) {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var size [8]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		c.t.Fatal(err)
	}
	n := int(size[0])<<24 | int(size[1])<<16 | int(size[2])<<8 | int(size[3])
	body = make([]byte, n-4)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatal(err)
	}
	return int32(size[4])<<24 | int32(size[5])<<16 | int32(size[6])<<8 | int32(size[7]), body
}

// do sends a request and waits for its answer.
func do[R kmsg.Response](c *client, req kmsg.Request) R {
	c.t.Helper()
	return c.receive(req, c.send(req)).(R)
}

// expectClosed waits until the broker has closed the connection, without any answer.
func (c *client) expectClosed() {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := io.ReadAll(c.conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Fatal("the connection is still open")
	}
	if len(b) > 0 {
		c.t.Fatalf("%d bytes before the end: %x", len(b), b)
	}
}

// createTopic makes a topic and gives its id.
func (c *client) createTopic(name string, partitions int32, configs ...string) [16]byte {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for _, kv := range configs {
		key, value, _ := strings.Cut(kv, "=")
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = key, &value
		topic.Configs = append(topic.Configs, cfg)
	}
	req.Topics = append(req.Topics, topic)
	resp := do[*kmsg.CreateTopicsResponse](c, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		c.t.Fatalf("create %s: error %d", name, code)
	}
	return resp.Topics[0].TopicID
}

// batch makes an uncompressed batch of n records of a size.
func batch(t testing.TB, n, size int) protocol.Batch {
	t.Helper()
	return batchOf(t, protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, n, size)
}

func batchOf(t testing.TB, spec protocol.BatchSpec, n, size int) protocol.Batch {
	t.Helper()
	if spec.BaseTimestamp == 0 {
		spec.BaseTimestamp = time.Now().UnixMilli()
	}
	var records []protocol.Record
	for i := range n {
		records = append(records, protocol.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: make([]byte, size)})
	}
	b, err := protocol.AppendBatch(nil, spec, records)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produceRequest makes a request with one partition.
func produceRequest(version int16, topic string, partition int32, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produce appends a batch and gives its base offset.
func (c *client) produce(topic string, partition int32, b protocol.Batch) int64 {
	c.t.Helper()
	resp := do[*kmsg.ProduceResponse](c, produceRequest(11, topic, partition, -1, b))
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.t.Fatalf("produce to %s-%d: error %d", topic, partition, p.ErrorCode)
	}
	return p.BaseOffset
}

// fetchRequest makes a request with partitions of one topic, all from an offset.
func fetchRequest(version int16, topic string, offset int64, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, 0, 1, 50<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, offset, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
	}
	if len(partitions) > 0 {
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func TestProducedRecordsAreFetched(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	id := c.createTopic("t", 2)
	b := batch(t, 3, 10)
	if got := c.produce("t", 1, b); got != 0 {
		t.Fatalf("base offset %d", got)
	}
	if got := c.produce("t", 1, batch(t, 2, 100_000)); got != 3 {
		t.Fatalf("base offset %d", got)
	}
	for version := int16(4); version <= 18; version++ {
		req := fetchRequest(version, "t", 0, 0, 1)
		req.Topics[0].TopicID = id
		resp := do[*kmsg.FetchResponse](c, req)
		if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
			t.Fatalf("v%d: %+v", version, resp)
		}
		p := resp.Topics[0].Partitions[1]
		if p.HighWatermark != 5 || p.LastStableOffset != 5 {
			t.Fatalf("v%d: high watermark %d, last stable offset %d", version, p.HighWatermark, p.LastStableOffset)
		}
		first, rest, err := protocol.SplitBatch(p.RecordBatches)
		if err != nil || len(first) != len(b) || first.CheckCRC() != nil {
			t.Fatalf("v%d: first batch: %v", version, err)
		}
		second, rest, err := protocol.SplitBatch(rest)
		if err != nil || second.CheckCRC() != nil || second.Header().BaseOffset != 3 || len(rest) != 0 {
			t.Fatalf("v%d: second batch: %v", version, err)
		}
	}
}

// discardRegistry takes metrics and forgets them.
type discardRegistry struct{}

func (discardRegistry) Register(prometheus.Collector) error  { return nil }
func (discardRegistry) MustRegister(...prometheus.Collector) {}
func (discardRegistry) Unregister(prometheus.Collector) bool { return true }
