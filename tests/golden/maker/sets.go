package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

var codecs = []protocol.Codec{protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLZ4, protocol.CodecZstd}

// plain has batches of every kind that needs no transaction.
func plain(b *broker) {
	b.createTopic("codecs", 2)
	odd := []record{
		kv(t0, "key", "value"), {t0 + 5, nil, []byte("null key"), nil}, {t0 + 3, []byte("null value"), nil, nil}, {t0 + 3, nil, nil, nil},
		{t0 + 1, []byte{}, []byte{}, nil},
		{t0 + 2, []byte("headers"), []byte("v"), []protocol.Header{
			{Key: "h1", Value: []byte("one")}, {Key: "h1", Value: []byte("again")}, {Key: "null"}, {Key: "empty", Value: []byte{}},
			{Key: "", Value: []byte("empty name")}, {Key: "ü", Value: []byte{0, 255}},
		}},
		kv(t0+4, "big", strings.Repeat("0123456789abcdef", 100)),
	}
	for i, codec := range codecs {
		b.put("codecs", 0, "", codec, nil, odd...)
		b.put("codecs", 0, "", codec, nil, kv(t0+10+int64(i), "single", codec.String()))
	}
	b.put("codecs", 1, "", 0, nil, record{timestamp: -1, key: []byte("no timestamp")})
	b.put("codecs", 1, "", 0, nil, record{timestamp: 0, key: []byte("epoch")})

	b.createTopic("segments", 1, "internal.segment.bytes", "4096", "index.interval.bytes", "512", "segment.index.bytes", "1200")
	idempotent := b.newProducer("")
	for i := range int64(60) {
		var p *producer
		if i%3 == 0 {
			p = idempotent
		}
		ts := t0 + i*1000
		if i%10 == 9 {
			ts -= 15_000 // timestamps mostly rise
		}
		b.put("segments", 0, "", 0, p, kv(ts, fmt.Sprintf("k%d", i%7), fmt.Sprintf("first of batch %d %s", i, strings.Repeat("x", int(20*(i%13))))),
			kv(ts+7, fmt.Sprintf("k%d", i%5), fmt.Sprintf("second of batch %d", i)))
	}
	b.createTopic("defaults", 1)
	for i := range int64(5) {
		b.put("defaults", 0, "", 0, nil, kv(t0+i, "k", strings.Repeat("d", 3000)))
	}
	b.createTopic("deleted", 1, "internal.segment.bytes", "1000")
	for i := range int64(12) {
		b.put("deleted", 0, "", 0, nil, kv(t0+i, "k", fmt.Sprintf("%d %s", i, strings.Repeat("y", 300))))
	}
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: "deleted", At: 5})
	deleted, err := b.admin.DeleteRecords(context.Background(), upTo)
	must(err)
	must(deleted.Error())
	b.createTopic("empty", 1)
}

// txn has transactions that are committed, aborted, interleaved, nested, and one that stays open with ended ones behind it.
func txn(b *broker) {
	b.createTopic("txn", 2, "internal.segment.bytes", "700", "index.interval.bytes", "200")
	ts := int64(t0)
	idempotent, other := b.newProducer(""), b.newProducer("")
	ps := map[string]*producer{"txn-a": b.newProducer("txn-a"), "txn-b": b.newProducer("txn-b"), "txn-open": b.newProducer("txn-open")}
	records := func(n int, who, what string) (list []record) {
		for i := range n {
			ts++
			list = append(list, kv(ts, fmt.Sprintf("%s-%d", who, i), what))
		}
		return list
	}
	put := func(id, what string, n int) { b.put("txn", 0, id, 0, ps[id], records(n, id, what)...) }
	outside := func(p *producer, what string, n int) { b.put("txn", 0, "", 0, p, records(n, "idem", what)...) }
	end := func(id string, commit bool) { b.end(id, ps[id], commit) }

	outside(idempotent, "idempotent", 2)
	put("txn-a", "committed", 2)
	end("txn-a", true)
	put("txn-b", "aborted", 2)
	end("txn-b", false)
	// Interleaved: b ends first and aborts, a commits later.
	put("txn-a", "committed 2", 1)
	put("txn-b", "aborted 2", 1)
	outside(nil, "no producer id", 1)
	put("txn-a", "committed 2", 1)
	put("txn-b", "aborted 2", 2)
	end("txn-b", false)
	outside(idempotent, "idempotent", 1)
	end("txn-a", true)
	// Nested: b commits, and then aborts, within a, which aborts.
	put("txn-a", "aborted 3", 1)
	put("txn-b", "committed 3", 1)
	end("txn-b", true)
	put("txn-b", "aborted 4", 1)
	end("txn-b", false)
	put("txn-a", "aborted 3", 1)
	end("txn-a", false)
	for range 6 {
		outside(other, "other idempotent", 1)
	}
	put("txn-open", "open", 2)
	put("txn-a", "committed behind open", 1)
	end("txn-a", true)
	put("txn-b", "aborted behind open", 1)
	end("txn-b", false)
	outside(nil, "last", 1)
	// The other partition takes part in two and has all ended.
	b.put("txn", 1, "txn-a", protocol.CodecGzip, ps["txn-a"], records(3, "txn-a", "two partitions, committed")...)
	end("txn-a", true)
	b.put("txn", 1, "txn-b", protocol.CodecZstd, ps["txn-b"], records(3, "txn-b", "aborted")...)
	end("txn-b", false)
}

// compacted fills two topics while nothing can be cleaned, and then has them cleaned: one once, one twice.
func compacted(b *broker) {
	configs := []string{"cleanup.policy", "compact", "internal.segment.bytes", "600", "min.cleanable.dirty.ratio", "1.0", "index.interval.bytes", "100"}
	b.createTopic("compacted", 1, configs...)
	b.createTopic("twice", 1, append(configs, "delete.retention.ms", "1000")...)
	one, two, idempotent := b.newProducer("compact-a"), b.newProducer("compact-b"), b.newProducer("")
	for _, topic := range []string{"compacted", "twice"} {
		idempotent.sequence = 0
		b.fillCompacted(topic, one, two, idempotent)
	}
	for _, topic := range []string{"compacted", "twice"} {
		before, _ := b.read(topic, 0, 0)
		b.setTopic(topic, "min.cleanable.dirty.ratio", "0.01")
		until("a cleaning of "+topic, func() bool {
			now, _ := b.read(topic, 0, 0)
			return len(now) < len(before)
		})
	}
	wait(3 * time.Second) // beyond delete.retention.ms of twice
	for i := range 12 {
		b.put("twice", 0, "", 0, nil, kv(time.Now().UnixMilli(), fmt.Sprintf("more%d", i%3), fmt.Sprintf("value %d %s", i, strings.Repeat("z", 90))))
	}
	wait(6 * time.Second)
}

func (b *broker) fillCompacted(topic string, one, two, idempotent *producer) {
	one.sequence, two.sequence = 0, 0
	ts := time.Now().UnixMilli() - 60_000
	put := func(p *producer, id string, codec protocol.Codec, pairs ...string) {
		var records []record
		for i := 0; i < len(pairs); i += 2 {
			ts++
			r := kv(ts, pairs[i], pairs[i+1])
			if pairs[i+1] == "null" {
				r.value = nil
			}
			records = append(records, r)
		}
		b.put(topic, 0, id, codec, p, records...)
	}
	put(nil, "", 0, "a", "1", "b", "1", "c", "1", "d", "1")
	put(idempotent, "", 0, "a", "2")
	put(nil, "", protocol.CodecGzip, "b", "2", "gone", "1", "e", "1")
	put(nil, "", 0, "gone", "null", "c", "2")
	put(one, "compact-a", 0, "a", "committed", "t", "1")
	b.end("compact-a", one, true)
	put(two, "compact-b", 0, "a", "aborted", "aborted only", "1")
	b.end("compact-b", two, false)
	put(two, "compact-b", 0, "b", "aborted too")
	put(one, "compact-a", 0, "d", "2", "never", "null")
	b.end("compact-b", two, false)
	b.end("compact-a", one, true)
	put(one, "compact-a", 0, "t", "2")
	b.end("compact-a", one, true)
	put(idempotent, "", 0, "idem", "overwritten")
	put(nil, "", protocol.CodecZstd, "idem", "by another", "e", "2", "f", "1")
	for i := range 12 {
		put(nil, "", 0, "filler", fmt.Sprint(i), fmt.Sprintf("k%d", i%4), fmt.Sprintf("value %d %s", i, strings.Repeat("z", 60)))
	}
}

func appendTime(b *broker) {
	b.createTopic("appendtime", 1, "message.timestamp.type", "LogAppendTime", "internal.segment.bytes", "600", "index.interval.bytes", "100")
	p := b.newProducer("")
	for _, codec := range codecs {
		b.put("appendtime", 0, "", codec, nil, kv(t0, "k1", "sent with an old timestamp"), kv(t0+1_000_000_000, "k2", codec.String()))
		b.put("appendtime", 0, "", 0, p, kv(-1, "k3", "sent without timestamp"))
		wait(30 * time.Millisecond)
	}
}

// epochs is one of four runs of the broker; the third appends nothing.
func epochs(run int) func(*broker) {
	return func(b *broker) {
		if run == 1 {
			b.createTopic("epochs", 2, "internal.segment.bytes", "500", "index.interval.bytes", "100")
		}
		b.awaitLeaders("epochs", 2)
		if run == 3 {
			return
		}
		for i := range 3 + run {
			b.put("epochs", 0, "", 0, nil, kv(t0+int64(run*1000+i), "k", fmt.Sprintf("run %d record %d %s", run, i, strings.Repeat("e", 60))))
		}
		if run != 2 {
			b.put("epochs", 1, "", 0, nil, kv(t0+int64(run*1000), "k", fmt.Sprintf("run %d", run)))
		}
	}
}

func killed(b *broker) {
	b.createTopic("killed", 1, "internal.segment.bytes", "1500", "index.interval.bytes", "200", "segment.index.bytes", "1200")
	idempotent, ended, open := b.newProducer(""), b.newProducer("killed-a"), b.newProducer("killed-open")
	ts := int64(t0)
	put := func(p *producer, id, value string) {
		ts++
		b.put("killed", 0, id, 0, p, kv(ts, "key "+id, value+strings.Repeat(".", 100)))
	}
	for i := range 12 {
		put(idempotent, "", fmt.Sprint("idempotent ", i))
	}
	put(ended, "killed-a", "aborted")
	b.end("killed-a", ended, false)
	put(open, "killed-open", "open")
	put(ended, "killed-a", "committed")
	b.end("killed-a", ended, true)
	for i := range 3 {
		put(idempotent, "", fmt.Sprint("idempotent behind open ", i))
	}
}

// metadata changes the cluster in ways that an import takes over, and in some that it doesn't.
func metadata(b *broker) {
	ctx := context.Background()
	b.createTopic("orders", 2, "retention.ms", "-1", "cleanup.policy", "compact", "max.message.bytes", "2000000")
	b.createTopic("gone", 1, "retention.ms", "5")
	b.createTopic("events.in", 1)
	removed, err := b.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "max.message.bytes"}}, "orders")
	must(err)
	must(removed[0].Err)
	added, err := b.admin.UpdatePartitions(ctx, 2, "events.in")
	must(err)
	must(added.Error())
	deleted, err := b.admin.DeleteTopics(ctx, "gone")
	must(err)
	must(deleted.Error())
	threads := "2"
	broker, err := b.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.cleaner.threads", Value: &threads}})
	must(err)
	must(broker[0].Err)
	user := "alice"
	quota := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entry.Entity = []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: &user}}
	entry.Ops = []kmsg.AlterClientQuotasRequestEntryOp{{Key: "consumer_byte_rate", Value: 1024}}
	quota.Entries = append(quota.Entries, entry)
	sure("quota", ask[*kmsg.AlterClientQuotasResponse](b, 1, quota).Entries[0].ErrorCode)
	p := b.newProducer("")
	for i, value := range []string{"1", "2", "3"} {
		b.put("orders", 0, "", 0, p, kv(time.Now().UnixMilli(), []string{"a", "b", "a"}[i], value))
	}
	b.put("events.in", 0, "", 0, nil, kv(time.Now().UnixMilli(), "k", "hello"))
	b.coordinator(0, "readers")
	var offsets kadm.Offsets
	offsets.AddOffset("orders", 0, 3, -1)
	offsets.AddOffset("orders", 1, 0, -1)
	must(b.admin.CommitAllOffsets(ctx, "readers", offsets))
}
