package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// dimension is something that a broker has more and more of, and a request whose cost is looked at meanwhile.
type dimension struct {
	name   string // what there is more of
	about  string // the request
	points []int
	begin  func(ctx context.Context, b *bed) (grower, error)
}

// grower is one dimension on one broker.
type grower interface {
	// grow brings the broker to n of what it is about; n never shrinks.
	grow(ctx context.Context, n int) error
	// probe does one request of the kind, anywhere in what has grown.
	probe(ctx context.Context) error
	close()
}

// point is what the request costs at one size: medians.
type point struct {
	N       int
	CPU     float64 // microseconds of the broker
	Latency float64 // microseconds until the answer
}

// curve is the points of one dimension and broker.
type curve struct {
	Dimension, About, Broker string
	Points                   []point
}

const (
	probeRounds = 5
	probes      = 4000 // in a round
)

// growthMain is the command "compare growth".
func growthMain(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("growth", flag.ExitOnError)
	var o options
	flags.StringVar(&o.loads, "load", "", "`pattern` of the names of the dimensions; all by default")
	flags.Float64Var(&o.scale, "scale", 1, "how far each dimension goes")
	flags.IntVar(&o.port, "port", 22200, "the first of the ports that brokers listen on")
	flags.StringVar(&o.dir, "dir", "", "`folder` for the brokers' data")
	flags.StringVar(&o.page, "page", "", "`file` to write as a page, with its chart and all figures beside it")
	flags.Parse(args)
	pattern, err := regexp.Compile(o.loads)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "growth-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	contenders, err := o.contenders(ctx, dir)
	if err != nil {
		return err
	}
	r := &runner{dir: dir, scale: o.scale, log: os.Stderr}
	g := growthReport{Date: time.Now().Format(time.DateOnly), Machine: machine()}
	for _, d := range dimensions() {
		for _, c := range contenders {
			if !pattern.MatchString(d.name) {
				continue
			}
			one, err := r.curve(ctx, d, c)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", d.name, c.name, err)
			}
			g.Curves = append(g.Curves, one)
		}
	}
	io.WriteString(os.Stdout, g.table())
	if o.page != "" {
		return g.writePage(o.page)
	}
	return nil
}

// curve takes a new broker along a dimension.
func (r *runner) curve(ctx context.Context, d dimension, c contender) (got curve, err error) {
	got = curve{Dimension: d.name, About: d.about, Broker: c.name}
	_, err = r.inFolder(c.name, func(dir string) (_ figures, err error) {
		broker, err := c.start(ctx, dir, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, broker.stop(syscall.SIGKILL)) }()
		b := &bed{broker: broker, address: c.address(), scale: r.scale}
		g, err := d.begin(ctx, b)
		if err != nil {
			return nil, err
		}
		defer g.close()
		for _, n := range d.points {
			n = b.n(n)
			if k := len(got.Points); k > 0 && got.Points[k-1].N == n {
				continue // scaled down to the same
			}
			if err := g.grow(ctx, n); err != nil {
				return nil, fmt.Errorf("grow to %d: %w", n, err)
			}
			p, err := b.measure(ctx, g)
			if err != nil {
				return nil, fmt.Errorf("at %d: %w", n, err)
			}
			p.N = n
			got.Points = append(got.Points, p)
			fmt.Fprintf(r.log, "%s %-18s %-9s %10d  cpu us %-6s p50 us %s\n", time.Now().Format(time.TimeOnly), d.name, c.name, n, number(p.CPU), number(p.Latency))
		}
		return nil, nil
	})
	return got, err
}

// measure does some rounds of probes; the first is not counted.
func (b *bed) measure(ctx context.Context, g grower) (point, error) {
	var cpu, latency []float64
	for round := range probeRounds + warmups {
		took := make([]float64, 0, probes)
		if err := b.begin(); err != nil {
			return point{}, err
		}
		for range probes {
			began := time.Now()
			if err := g.probe(ctx); err != nil {
				return point{}, err
			}
			took = append(took, float64(time.Since(began).Nanoseconds())/1e3)
		}
		if err := b.end(); err != nil {
			return point{}, err
		}
		if round >= warmups {
			cpu = append(cpu, float64((b.after.cpu-b.before.cpu).Nanoseconds())/1e3/probes)
			latency = append(latency, median(took))
		}
	}
	return point{CPU: median(cpu), Latency: median(latency)}, nil
}

func decades(last int) (points []int) {
	for n := 1; n <= last; n *= 10 {
		points = append(points, n)
	}
	return points
}

func dimensions() []dimension {
	return []dimension{
		{"partitions", "Produce to any of them", decades(10000), newManyPartitions},
		{"connections", "Produce over any of them", decades(1000), newManyConnections},
		{"MB of log", "Produce, and Fetch anywhere", append(decades(10000), 20000), newLongLog},
		{"producer ids", "idempotent Produce of any of them", decades(100000), newManyProducers},
		{"groups", "OffsetCommit of any of them", decades(10000), newManyGroups},
		{"open transactions", "another transaction, begin to commit", decades(10000), newManyTransactions},
	}
}

// anyOf draws from a list.
func anyOf[T any](list []T) T { return list[rand.IntN(len(list))] }

var growthValue = slices.Repeat([]byte("x"), 100)
