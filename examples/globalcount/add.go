package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// totals is what a worker knows of the partitions that it has: for each the total of each word. It is a copy of what the
// topic of totals holds, kept to be fast, and thrown away whenever it may differ from it.
type totals struct {
	mu         sync.Mutex
	partitions map[int32]map[string]int64 // guarded by mu: the client takes partitions away from its own goroutine
}

func (t *totals) drop(partitions []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range partitions {
		delete(t.partitions, p)
	}
}

func (t *totals) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions = map[int32]map[string]int64{}
}

// of gives the totals of a partition, which it reads if they are not known.
func (t *totals) of(partition int32, read func() (map[string]int64, error)) (map[string]int64, error) {
	t.mu.Lock()
	known := t.partitions[partition]
	t.mu.Unlock()
	if known != nil {
		return known, nil
	}
	known, err := read()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition] = known
	return known, nil
}

// addOnce is one life of a worker that adds deltas up.
func (o options) addOnce(ctx context.Context, id string) error {
	var t totals
	t.dropAll()
	gone := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		t.drop(partitions[o.deltasTopic()])
	}
	session, err := kgo.NewGroupTransactSession(append(o.grouped(id, "add", o.deltasTopic()),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))...)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		deltas, err := poll(ctx, session)
		if err != nil {
			return err
		}
		changed, err := o.add(ctx, &t, deltas)
		if err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		written := kgo.AbortingFirstErrPromise(session.Client())
		for partition, words := range changed {
			for word, total := range words {
				session.Produce(ctx, number(o.countsTopic(), partition, word, total), written.Promise())
			}
		}
		committed, err := session.End(ctx, written.Err() == nil)
		if err != nil {
			return err
		}
		if !committed {
			t.dropAll() // the sums in memory are ahead of those that are stored
		}
	}
}

// add adds deltas to the totals and gives those that changed. A partition of deltas has its totals in the partition of the
// same number.
func (o options) add(ctx context.Context, t *totals, deltas []*kgo.Record) (changed map[int32]map[string]int64, err error) {
	changed = map[int32]map[string]int64{}
	for _, d := range deltas {
		sums, err := t.of(d.Partition, func() (map[string]int64, error) { return o.readTotals(ctx, d.Partition) })
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(string(d.Value), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("delta at %d of partition %d: %w", d.Offset, d.Partition, err)
		}
		word := string(d.Key)
		sums[word] += n
		if changed[d.Partition] == nil {
			changed[d.Partition] = map[string]int64{}
		}
		changed[d.Partition][word] = sums[word]
	}
	return changed, nil
}

// readTotals reads back what a partition had been counted to. The group's offset was read before: whoever had the partition
// has ended its last transaction by then, so totals and offset belong together.
func (o options) readTotals(ctx context.Context, partition int32) (map[string]int64, error) {
	sums := map[string]int64{}
	err := o.readTo(ctx, o.countsTopic(), []int32{partition}, func(r *kgo.Record) {
		sums[string(r.Key)], _ = strconv.ParseInt(string(r.Value), 10, 64)
	})
	return sums, err
}
