package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produceLoad is records written as fast as the client can.
type produceLoad struct {
	size        int // of a record's value
	bytes       int // in all, at full scale
	partitions  int
	connections int
	acks        kgo.Acks
	plain       bool // not idempotent
	codec       kgo.CompressionCodec
	linger      time.Duration
}

func (l produceLoad) options(address, topic string) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(l.acks), kgo.ProducerLinger(l.linger),
		kgo.ProducerBatchCompression(l.codec), kgo.MaxBufferedRecords(min(10000, 64<<20/l.size)),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchMaxBytes(1_000_000 + int32(l.size)),
	}
	if l.plain {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	return opts
}

// values are what records hold: text that compresses to about half, the same in every run.
func values(size int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	list := make([][]byte, 64)
	for i := range list {
		list[i] = make([]byte, size)
		for j := range list[i] {
			list[i][j] = "etaoinshrdlucmfw"[random.IntN(16)]
		}
	}
	return list
}

func (l produceLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, l.partitions, "max.message.bytes", "4000000")
	if err != nil {
		return result{}, err
	}
	total := b.n(l.bytes) / l.size
	clients := max(l.connections, 1)
	all := make([]*kgo.Client, clients)
	for i := range all {
		cl, err := kgo.NewClient(l.options(b.address, topic)...)
		if err != nil {
			return result{}, err
		}
		defer cl.Close()
		all[i] = cl
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("first")}).FirstErr(); err != nil {
			return result{}, err
		}
	}
	list := values(l.size)
	if err := b.begin(); err != nil {
		return result{}, err
	}
	var group sync.WaitGroup
	failures := make([]error, clients)
	for i, cl := range all {
		group.Go(func() {
			promise := func(_ *kgo.Record, err error) { failures[i] = errors.Join(failures[i], err) }
			for k := range total / clients {
				cl.Produce(ctx, &kgo.Record{Value: list[k%len(list)]}, promise)
			}
			failures[i] = errors.Join(cl.Flush(ctx), failures[i])
		})
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	r := result{work: float64(total/clients*clients*l.size) / 1e9, unit: "GB"}
	return r, b.deleteTopic(ctx, topic)
}

// produceLoads vary one thing at a time.
func produceLoads() (loads []load) {
	base := produceLoad{size: 1 << 10, bytes: 1 << 30, partitions: 12, acks: kgo.AllISRAcks(), codec: kgo.NoCompression(), linger: 5 * time.Millisecond}
	add := func(name string, goals []goal, change func(*produceLoad)) {
		l := base
		if change != nil {
			change(&l)
		}
		about := fmt.Sprintf("%d B records, %d partitions, %d connections, linger %v", l.size, l.partitions, max(l.connections, 1), l.linger)
		var bound *limit
		if l.codec == base.codec { // the same number of bytes goes to the disk
			bound = limitBytes("receive", l.bytes)
		}
		loads = append(loads, load{name: "produce/" + name, about: about, run: l.run, limit: bound, goals: goals})
	}
	add("1KiB", []goal{{figure: cpuPer, most: .4}, {figure: cpuPer, most: 1.3, than: "limit"}, {figure: rate, least: 1.2}}, nil)
	add("100B", []goal{{figure: cpuPer, most: .4}}, func(l *produceLoad) { l.size, l.bytes = 100, 200<<20 })
	add("10KiB", nil, func(l *produceLoad) { l.size = 10 << 10 })
	add("1MiB", nil, func(l *produceLoad) { l.size = 1 << 20 })
	add("acks0", nil, func(l *produceLoad) { l.acks, l.plain = kgo.NoAck(), true })
	add("acks1", nil, func(l *produceLoad) { l.acks, l.plain = kgo.LeaderAck(), true })
	add("lz4", nil, func(l *produceLoad) { l.codec, l.bytes = kgo.Lz4Compression(), 500<<20 })
	add("zstd", nil, func(l *produceLoad) { l.codec, l.bytes = kgo.ZstdCompression(), 500<<20 })
	add("1partition", nil, func(l *produceLoad) { l.partitions = 1 })
	add("100partitions", nil, func(l *produceLoad) { l.partitions = 100 })
	add("10connections", nil, func(l *produceLoad) { l.connections = 10 })
	add("200connections", nil, func(l *produceLoad) { l.connections, l.bytes = 200, 400<<20 })
	add("linger0", nil, func(l *produceLoad) { l.linger, l.bytes = 0, 400<<20 })
	return loads
}
