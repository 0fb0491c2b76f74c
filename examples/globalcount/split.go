package main

import (
	"context"
	"hash/fnv"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// progressKey is the key of records that say how many pieces the deltas before them come from. Each partition gets one with
// every transaction, so that the totals of a partition tell how much text is in them. No word is empty.
const progressKey = ""

// splitOnce is one life of a worker that turns pieces of text into deltas.
func (o options) splitOnce(ctx context.Context, id string) error {
	session, err := kgo.NewGroupTransactSession(o.grouped(id, "split", o.chunksTopic())...)
	if err != nil {
		return err
	}
	defer session.Close()
	partitions, err := partitionsOf(ctx, session.Client(), o.deltasTopic())
	if err != nil {
		return err
	}
	for {
		pieces, err := poll(ctx, session)
		if err != nil {
			return err
		}
		counts := map[string]int64{}
		for _, piece := range pieces {
			countWords(piece.Value, counts)
		}
		// The transaction begins when there is something to do: while it is open everybody who reads behind it waits.
		if err := session.Begin(); err != nil {
			return err
		}
		written := kgo.AbortingFirstErrPromise(session.Client())
		for word, n := range counts {
			session.Produce(ctx, number(o.deltasTopic(), partitionOf(word, partitions), word, n), written.Promise())
		}
		for p := range partitions {
			session.Produce(ctx, number(o.deltasTopic(), int32(p), progressKey, int64(len(pieces))), written.Promise())
		}
		// End adds the group's offsets to the transaction and commits it, if all records were written. It aborts instead if
		// the partitions were given to somebody else meanwhile. The pieces are then read again, by whoever has them.
		if _, err := session.End(ctx, written.Err() == nil); err != nil {
			return err
		}
	}
}

// poll waits for records.
func poll(ctx context.Context, session *kgo.GroupTransactSession) ([]*kgo.Record, error) {
	for {
		fetches := session.PollRecords(ctx, 20000)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		if records := fetches.Records(); len(records) > 0 {
			return records, nil
		}
	}
}

// number is a record of a word and a number.
func number(topic string, partition int32, word string, n int64) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(word), Value: strconv.AppendInt(nil, n, 10)}
}

// partitionOf says where a word is added up: always at the same place, so that one worker sees all of it.
func partitionOf(word string, partitions int) int32 {
	h := fnv.New32a()
	h.Write([]byte(word))
	return int32(h.Sum32() % uint32(partitions))
}
