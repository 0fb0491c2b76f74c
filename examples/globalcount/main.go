package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const usage = `globalcount counts words exactly once through a Kafka-compatible broker.

    globalcount [flags] count PATH...    count the words of files and folders; may be killed and started again
    globalcount [flags] work             only lend workers to a count that runs elsewhere; needs a -name of its own
    globalcount [flags] verify PATH...   compare the broker's counts with a plain count of the same files
    globalcount [flags] top              show the most frequent words
    globalcount [flags] reset            delete the topics, to begin anew

`

// options are the command line.
type options struct {
	brokers    string
	prefix     string // of topics, groups and transactional ids
	name       string // of this process: two at a time need two names
	workers    int    // of each of the two stages
	partitions int
	paths      []string
}

func main() {
	var o options
	flag.StringVar(&o.brokers, "brokers", "127.0.0.1:9092", "`host:port` of the broker, or several")
	flag.StringVar(&o.prefix, "prefix", "globalcount", "what topics, groups and transactional ids begin with")
	flag.StringVar(&o.name, "name", "one", "name of this process, the same at each start; no two at a time may have the same")
	flag.IntVar(&o.workers, "workers", 3, "workers of each stage")
	flag.IntVar(&o.partitions, "partitions", 6, "partitions of each topic, if they are created")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.paths = flag.Args()[1:]
	if err := o.run(ctx, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "globalcount:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, command string) error {
	switch command {
	case "count":
		return o.count(ctx)
	case "work":
		if err := o.createTopics(ctx); err != nil {
			return err
		}
		o.startWorkers(ctx).Wait()
		return nil
	case "verify":
		return o.verify(ctx)
	case "top":
		counts, err := o.readCounts(ctx)
		if err != nil {
			return err
		}
		printTop(counts)
		return nil
	case "reset":
		return o.deleteTopics(ctx)
	}
	return fmt.Errorf("unknown command %q", command)
}

// count loads the files and runs the workers until everything that was loaded is counted.
func (o options) count(ctx context.Context) error {
	began := time.Now()
	if len(o.paths) == 0 {
		return errors.New("count needs files or folders")
	}
	if err := o.createTopics(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer o.startWorkers(working).Wait()
	defer stop()

	chunks, err := o.load(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("loaded %d pieces in %v\n", chunks, time.Since(began).Round(time.Millisecond))
	counts, err := o.awaitCounts(ctx, chunks)
	if err != nil {
		return err
	}
	printTop(counts)
	fmt.Printf("counted exactly once in %v\n", time.Since(began).Round(time.Millisecond))
	return nil
}

// startWorkers starts the workers of both stages, which run until ctx ends.
func (o options) startWorkers(ctx context.Context) *sync.WaitGroup {
	var workers sync.WaitGroup
	for i := range o.workers {
		workers.Go(func() { o.work(ctx, fmt.Sprintf("split-%d", i), o.splitOnce) })
		workers.Go(func() { o.work(ctx, fmt.Sprintf("add-%d", i), o.addOnce) })
	}
	return &workers
}

// work runs a worker again and again, each time with a new session, until ctx ends. What makes a session end early (a broker
// that is away, a transaction that was fenced) is nothing to recover from: what was committed stays, the rest is done anew.
func (o options) work(ctx context.Context, worker string, once func(ctx context.Context, id string) error) {
	id := fmt.Sprintf("%s-%s-%s", o.prefix, o.name, worker)
	for ctx.Err() == nil {
		if err := once(ctx, id); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%s: %v; starting again\n", worker, err)
			pause(ctx, 300*time.Millisecond)
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
