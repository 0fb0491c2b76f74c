package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m.Run)) }

// settings make a broker that does not let tests wait.
var settings = []string{
	"group.initial.rebalance.delay.ms=0",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
}

// within bounds everything that a test waits for.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var names atomic.Int64

// name is one that nothing else has on this broker, also one that was there before.
func name(t *testing.T, what string) string {
	return fmt.Sprintf("%s-%s-%d-%d", what, sanitize(t.Name()), time.Now().UnixNano(), names.Add(1))
}

func sanitize(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			b[i] = '-'
		}
	}
	return string(b[:min(len(b), 120)])
}

// newClient makes a client that is closed with the test.
func newClient(t *testing.T, b *brokertest.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Addr()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// newTopic creates a topic and waits until it can be used.
func newTopic(t *testing.T, b *brokertest.Broker, partitions int32, configs map[string]*string) string {
	t.Helper()
	topic := name(t, "topic")
	adm := kadm.NewClient(newClient(t, b))
	ctx := within(t, 20*time.Second)
	resp, err := adm.CreateTopic(ctx, partitions, 1, configs, topic)
	if err != nil || resp.Err != nil {
		t.Fatalf("create %s: %v, %v", topic, err, resp.Err)
	}
	for ctx.Err() == nil {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions) {
			return topic
		}
	}
	t.Fatalf("topic %s never became usable", topic)
	return ""
}

func record(topic string, partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

func mustProduce(t *testing.T, ctx context.Context, cl *kgo.Client, rs ...*kgo.Record) {
	t.Helper()
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

// committed reads what read_committed consumers see of a topic from the start up to the last stable offset, by
// partition, in order.
func committed(t *testing.T, b *brokertest.Broker, topic string) map[int32][]*kgo.Record {
	t.Helper()
	return readAll(t, b, topic, kgo.ReadCommitted())
}

// uncommitted reads all records of a topic up to the high watermark.
func uncommitted(t *testing.T, b *brokertest.Broker, topic string) map[int32][]*kgo.Record {
	t.Helper()
	return readAll(t, b, topic, kgo.ReadUncommitted())
}

// readAll reads from the start to where the isolation level lets it. It asks for the markers too, so that it sees the last
// offset below the end that the broker told; that one must not belong to an aborted record.
func readAll(t *testing.T, b *brokertest.Broker, topic string, level kgo.IsolationLevel) map[int32][]*kgo.Record {
	t.Helper()
	ctx := within(t, 30*time.Second)
	adm := kadm.NewClient(newClient(t, b))
	list := adm.ListEndOffsets
	if level == kgo.ReadCommitted() {
		list = adm.ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("end offsets of %s: %v", topic, err)
	}
	from := map[int32]kgo.Offset{}
	for p, o := range ends[topic] {
		if o.Offset > 0 {
			from[p] = kgo.NewOffset().At(0)
		}
	}
	got := map[int32][]*kgo.Record{}
	if len(from) == 0 {
		return got
	}
	cl := newClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	defer cl.Close()
	for len(from) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fs.EachError(func(_ string, p int32, err error) { t.Fatalf("read %s-%d: %v", topic, p, err) })
		fs.EachPartition(func(ftp kgo.FetchTopicPartition) {
			for _, r := range ftp.Records {
				if r.Offset < ends[topic][ftp.Partition].Offset && !r.Attrs.IsControl() {
					got[ftp.Partition] = append(got[ftp.Partition], r)
				}
			}
			if n := len(ftp.Records); n > 0 && ftp.Records[n-1].Offset >= ends[topic][ftp.Partition].Offset-1 {
				delete(from, ftp.Partition)
			}
		})
	}
	return got
}

func values(rs []*kgo.Record) []string {
	var vs []string
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func wantValues(t *testing.T, what string, got []*kgo.Record, want ...string) {
	t.Helper()
	if !slices.Equal(values(got), want) {
		t.Errorf("%s: got %q, want %q", what, values(got), want)
	}
}

func numbered(prefix string, n int) []string {
	var vs []string
	for i := range n {
		vs = append(vs, prefix+strconv.Itoa(i))
	}
	return vs
}
