package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// perTransaction is how many bytes of text are loaded in one transaction, and at least one file.
const perTransaction = 4 << 20

// load brings the text of all files into the topic of pieces, each file once, and gives the number of pieces that are there.
// It goes on where it was cut off: which files are loaded is known from records that were written in the same transactions.
func (o options) load(ctx context.Context) (chunks int64, err error) {
	files, err := textFiles(o.paths)
	if err != nil {
		return 0, err
	}
	for {
		chunks, err = o.loadRest(ctx, files)
		if err == nil || ctx.Err() != nil {
			return chunks, err
		}
		fmt.Fprintf(os.Stderr, "load: %v; starting again\n", err)
		pause(ctx, 300*time.Millisecond)
	}
}

// loadRest loads what is not loaded yet.
func (o options) loadRest(ctx context.Context, files []string) (chunks int64, err error) {
	// The client comes first: from its first transaction on no earlier loader of that id can commit anything.
	cl, err := kgo.NewClient(o.transactional(o.prefix + "-load")...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return 0, err
	}
	partitions, err := partitionsOf(ctx, cl, o.chunksTopic())
	if err != nil {
		return 0, err
	}
	loaded, err := o.loaded(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range loaded {
		chunks += n
	}
	for len(files) > 0 {
		n, rest, err := o.loadSome(ctx, cl, partitions, files, loaded)
		if err != nil {
			return 0, err
		}
		chunks, files = chunks+n, rest
	}
	return chunks, nil
}

// loaded gives the files that are loaded, each with its number of pieces.
func (o options) loaded(ctx context.Context) (map[string]int64, error) {
	files := map[string]int64{}
	err := o.readTo(ctx, o.filesTopic(), nil, func(r *kgo.Record) {
		files[string(r.Key)], _ = strconv.ParseInt(string(r.Value), 10, 64)
	})
	return files, err
}

// loadSome loads some of the files in one transaction and gives the rest.
func (o options) loadSome(ctx context.Context, cl *kgo.Client, partitions int, files []string, loaded map[string]int64) (chunks int64, rest []string, err error) {
	if err := cl.BeginTransaction(); err != nil {
		return 0, nil, err
	}
	var records []*kgo.Record
	for bytes := 0; len(files) > 0 && bytes < perTransaction; files = files[1:] {
		name := files[0]
		if _, ok := loaded[name]; ok {
			continue
		}
		pieces, err := chunksOf(name)
		if err != nil {
			return 0, nil, err
		}
		for _, piece := range pieces {
			records = append(records, &kgo.Record{Topic: o.chunksTopic(), Partition: int32(len(records) % partitions), Value: piece})
			bytes += len(piece)
		}
		chunks += int64(len(pieces))
		records = append(records, &kgo.Record{Topic: o.filesTopic(), Key: []byte(name), Value: strconv.AppendInt(nil, int64(len(pieces)), 10)})
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, nil, err
	}
	return chunks, files, cl.EndTransaction(ctx, kgo.TryCommit)
}
