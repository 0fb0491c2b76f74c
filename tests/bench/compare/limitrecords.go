package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// The limit of single records is what the machine itself takes: the messages of a load over loopback, the wake-ups for them, and
// the write to a file. Its process knows requests by their API key and looks at nothing else:
//
//	Produce   the batch in it goes to the end of a file by one pwrite; the answer is always the same
//	Fetch     is answered with all batches since the one before, as soon as there are any, but the first at once; one connection may send it
//
// Its client is the load's own where that has no client library, and otherwise two connections that send and ask for the same
// as the library would. The process is in limitrecords_linux.go.

// limitTopic is as long as the names of topics that loads make.
const limitTopic = "compare-1700000000000000000"

// limitAnswers are the bytes of a connection that are always the same.
type limitAnswers struct {
	batchAt int    // where in a Produce request its batch begins
	tail    int    // what follows a batch there
	produce []byte // the answer
	fetch   []byte // the answer before its batches, its size that of no batches
}

func newLimitAnswers() limitAnswers {
	const sizeOfBatch, tags = 2, 3 // varints: of a batch from 127 to 16382 bytes; no tags thrice
	a := limitAnswers{batchAt: len(batchFrame(limitTopic, 0, -1, nil)) - 1 - tags + sizeOfBatch, tail: tags}
	p := kmsg.NewPtrProduceResponse()
	p.Version = produceVersion
	p.Topics = []kmsg.ProduceResponseTopic{{Topic: limitTopic, Partitions: []kmsg.ProduceResponseTopicPartition{kmsg.NewProduceResponseTopicPartition()}}}
	a.produce = answerFrame(p)
	f := kmsg.NewPtrFetchResponse()
	f.Version = fetchVersion
	f.Topics = []kmsg.FetchResponseTopic{{Partitions: []kmsg.FetchResponseTopicPartition{kmsg.NewFetchResponseTopicPartition()}}}
	a.fetch = answerFrame(f)
	return a
}

const fetchVersion = 16

// answerFrame encodes an answer of a flexible version: size, correlation id, no tags, body.
func answerFrame(resp kmsg.Response) []byte {
	b := resp.AppendTo(make([]byte, 4+4+1))
	b[3] = byte(len(b) - 4)
	return b
}

// fetchFrame is a long poll of a fetch session that reads one partition.
func fetchFrame() []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchVersion, int32(answerPatience.Milliseconds()), 1, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
	return frame(req)
}

// limit is a process that passes the records on, from the one who produces them to the one who fetches them.
func (l latencyLoad) limit() *limit {
	return &limit{mode: "answer", connections: 2, drive: l.drive}
}

func (l latencyLoad) drive(ctx context.Context, b *bed) (result, error) {
	producer, err := dial(ctx, b.address)
	if err != nil {
		return result{}, err
	}
	defer producer.close()
	consumer, err := dial(ctx, b.address)
	if err != nil {
		return result{}, err
	}
	defer consumer.close()
	if err := consumer.send(fetchFrame()); err != nil {
		return result{}, err
	}
	if _, err := consumer.receive(); err != nil { // of the first Fetch, which has no records
		return result{}, err
	}
	if _, err := l.timed(ctx, producer, consumer, 200); err != nil {
		return result{}, err
	}
	n := b.n(l.seconds * l.perSecond)
	if err := b.begin(); err != nil {
		return result{}, err
	}
	latencies, err := l.timed(ctx, producer, consumer, n)
	if err := errors.Join(err, b.end()); err != nil {
		return result{}, err
	}
	return result{work: float64(n), unit: "record", latencies: latencies}, nil
}

// timed sends n records at the rate, and tells how long each took to the consumer. The time of a batch is when it was sent.
func (l latencyLoad) timed(ctx context.Context, producer, consumer *wire, n int) ([]time.Duration, error) {
	origin, value := time.Now(), values(100)[0]
	send := func(due int) error {
		for due > 0 {
			records := min(due, 100) // what is late comes as large batches, but not without bounds
			due -= records
			batch, err := batchOf(int64(time.Since(origin)), value, records)
			if err != nil {
				return err
			}
			if err := producer.send(batchFrame(limitTopic, 0, -1, batch)); err != nil {
				return err
			}
			if _, err := producer.receive(); err != nil {
				return err
			}
		}
		return nil
	}
	sent := make(chan error, 1)
	go func() { sent <- l.pace(ctx, n, send) }()
	latencies, fetch, head := make([]time.Duration, 0, n), fetchFrame(), len(newLimitAnswers().fetch)-4
	for len(latencies) < n {
		if err := consumer.send(fetch); err != nil {
			return nil, err
		}
		answer, err := consumer.receive()
		if err != nil {
			return nil, err
		}
		now := time.Since(origin)
		for rest := answer[head:]; len(rest) > 0; {
			h := protocol.Batch(rest).Header()
			for range h.NumRecords {
				latencies = append(latencies, now-time.Duration(h.BaseTimestamp))
			}
			rest = rest[h.Size:]
		}
	}
	return latencies, <-sent
}
