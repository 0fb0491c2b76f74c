package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

type options struct {
	broker  string
	n       int
	rounds  int
	prepare string
	per     int
	metrics string
	pid     int
	idle    time.Duration
	conns   int
	flush   int
	during  time.Duration
}

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("bench txn, acks, start, internal or partitions, see doc.go"))
	}
	var o options
	fs := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	fs.StringVar(&o.broker, "broker", "127.0.0.1:9092", "`host:port`")
	fs.IntVar(&o.n, "n", 0, "transactions of a round (500), or in all (200000), or partitions (10000)")
	fs.IntVar(&o.rounds, "rounds", 3, "rounds")
	fs.StringVar(&o.prepare, "prepare", "", "`command` that makes {dir} ready")
	fs.IntVar(&o.per, "per", 0, "partitions of a topic; 0: all are of one")
	fs.StringVar(&o.metrics, "metrics", "", "`URL` of the broker's metrics")
	fs.IntVar(&o.pid, "pid", 0, "process of a running broker, to be looked at")
	fs.DurationVar(&o.idle, "idle", 10*time.Second, "how long an idle broker is watched")
	fs.IntVar(&o.conns, "conns", 1, "connections, each with a partition of its own")
	fs.IntVar(&o.flush, "flush", 1, "flush.messages of the topic; 0: the broker's")
	fs.DurationVar(&o.during, "for", 5*time.Second, "how long a round of acks takes")
	fs.Parse(os.Args[2:])
	ctx := context.Background()
	var err error
	switch os.Args[1] {
	case "txn":
		o.n = cmp.Or(o.n, 500)
		err = o.repeat("transactions/s", func() (float64, error) { return o.transactions(ctx) })
	case "start":
		err = o.repeat("ms", func() (float64, error) { return o.start(ctx, fs.Args()) })
	case "acks":
		err = o.repeat("acks/s", func() (float64, error) { return o.acks(ctx) })
	case "internal":
		o.n = cmp.Or(o.n, 200_000)
		err = o.internal(ctx, fs.Args())
	case "partitions":
		o.n = cmp.Or(o.n, 10000)
		err = o.partitions(ctx, fs.Args())
	default:
		err = fmt.Errorf("unknown figure %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

func (o options) repeat(unit string, measure func() (float64, error)) error {
	var all []float64
	for range o.rounds {
		v, err := measure()
		if err != nil {
			return err
		}
		fmt.Printf("%.1f %s\n", v, unit)
		all = append(all, v)
	}
	slices.Sort(all)
	fmt.Printf("median %.1f %s\n", all[len(all)/2], unit)
	return nil
}

// transactions commits n transactions of one record, one after the other.
func (o options) transactions(ctx context.Context) (perSecond float64, err error) {
	name := fmt.Sprint("bench-", time.Now().UnixNano())
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.broker), kgo.TransactionalID(name), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	if err := commitOne(ctx, cl, name); err != nil { // makes topic and producer id
		return 0, err
	}
	began := time.Now()
	for range o.n {
		if err := commitOne(ctx, cl, name); err != nil {
			return 0, err
		}
	}
	return float64(o.n) / time.Since(began).Seconds(), nil
}

// commitOne commits a transaction of one record.
func commitOne(ctx context.Context, cl *kgo.Client, topic string) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// start runs a broker on an empty folder and measures until it has acknowledged a record.
func (o options) start(ctx context.Context, command []string) (millis float64, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := prepared(o.prepare, dir); err != nil {
		return 0, err
	}
	began := time.Now()
	p, err := launch(command, dir)
	if err != nil {
		return 0, err
	}
	defer p.end(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err = firstRecord(ctx, o.broker); err == nil {
			return float64(time.Since(began).Microseconds()) / 1000, nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, err
		}
	}
}

// firstRecord makes a topic and produces one record with acks=all.
func firstRecord(ctx context.Context, broker string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", broker)
	if err != nil {
		return err
	}
	cl := protocol.NewClient(conn, "bench")
	defer cl.Close()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.AllowAutoTopicCreation = 9, true
	topic := "first"
	meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	if _, err := cl.Request(ctx, meta); err != nil {
		return err
	}
	b, err := record()
	if err != nil {
		return err
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks, produce.TimeoutMillis = 9, -1, 5000
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: b}}}}
	resp, err := cl.Request(ctx, produce)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}
