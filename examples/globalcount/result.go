package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// counts are the results: how often each word was counted, and how many pieces of text are in each partition's totals.
type counts struct {
	words    map[string]int64
	progress map[int32]int64
}

// readCounts reads the results as they stand.
func (o options) readCounts(ctx context.Context) (*counts, error) {
	c := &counts{words: map[string]int64{}, progress: map[int32]int64{}}
	err := o.readTo(ctx, o.countsTopic(), nil, func(r *kgo.Record) { c.add(r) })
	return c, err
}

func (c *counts) add(r *kgo.Record) {
	n, _ := strconv.ParseInt(string(r.Value), 10, 64)
	if string(r.Key) == progressKey {
		c.progress[r.Partition] = n
	} else {
		c.words[string(r.Key)] = n
	}
}

// complete tells if all partitions have got as far as there is text.
func (c *counts) complete(partitions int, chunks int64) bool {
	for p := range partitions {
		if c.progress[int32(p)] != chunks {
			return false
		}
	}
	return true
}

// awaitCounts follows the results until all pieces of text are in them.
func (o options) awaitCounts(ctx context.Context, chunks int64) (*counts, error) {
	cl, err := kgo.NewClient(append(o.common(), kgo.ConsumeTopics(o.countsTopic()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	partitions, err := partitionsOf(ctx, cl, o.countsTopic())
	for err != nil {
		if pause(ctx, 300*time.Millisecond); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		partitions, err = partitionsOf(ctx, cl, o.countsTopic())
	}
	c := &counts{words: map[string]int64{}, progress: map[int32]int64{}}
	for !c.complete(partitions, chunks) {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			fmt.Fprintf(os.Stderr, "results: %v; going on\n", e.Err)
		}
		fetches.EachRecord(c.add)
	}
	return c, nil
}

// verify compares the results with a count that needs no broker.
func (o options) verify(ctx context.Context) error {
	if len(o.paths) == 0 {
		return errors.New("verify needs the files or folders that were counted")
	}
	files, err := textFiles(o.paths)
	if err != nil {
		return err
	}
	plain := map[string]int64{}
	for _, name := range files {
		pieces, err := chunksOf(name)
		if err != nil {
			return err
		}
		for _, piece := range pieces {
			countWords(piece, plain)
		}
	}
	c, err := o.readCounts(ctx)
	if err != nil {
		return err
	}
	wrong := 0
	for word, want := range plain {
		if got := c.words[word]; got != want {
			if wrong++; wrong <= 10 {
				fmt.Printf("%q: counted %d, is %d\n", word, got, want)
			}
		}
		delete(c.words, word)
	}
	for word, got := range c.words {
		if wrong++; wrong <= 10 {
			fmt.Printf("%q: counted %d, is not there\n", word, got)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d words are counted wrong", wrong)
	}
	fmt.Printf("%d files, %d different words, %d in all: each counted exactly once\n", len(files), len(plain), sum(plain))
	return nil
}

func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

func printTop(c *counts) {
	words := make([]string, 0, len(c.words))
	for w := range c.words {
		words = append(words, w)
	}
	sort.Slice(words, func(i, j int) bool {
		if c.words[words[i]] != c.words[words[j]] {
			return c.words[words[i]] > c.words[words[j]]
		}
		return words[i] < words[j]
	})
	for _, w := range words[:min(len(words), 10)] {
		fmt.Printf("%9d %s\n", c.words[w], w)
	}
	fmt.Printf("%9d words, %d different\n", sum(c.words), len(c.words))
}
