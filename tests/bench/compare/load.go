package main

import (
	"context"
	"slices"
	"time"
)

// load is some work that every contender gets.
type load struct {
	name     string // GROUP/WHAT
	about    string
	settings []string // of the broker; loads with the same settings share a process
	// run does the work on a running broker. What it does before result.begin is not measured.
	run func(ctx context.Context, b *bed) (result, error)
	// alone is in the place of run for a load that starts the broker itself, on an empty folder.
	alone func(ctx context.Context, r *runner, c contender, dir string) (figures, error)
	// limit, if not nil, moves the same bytes with the least that can be done.
	limit *limit
	goals []goal
}

// bed is what a load runs on.
type bed struct {
	broker  *broker
	address string
	tool    string // runs a class of Kafka's tools
	scale   float64
	before  sample
	after   sample
}

// n is a number of things to do, scaled.
func (b *bed) n(full int) int { return max(int(float64(full)*b.scale), 1) }

// begin and end bracket what is measured.
func (b *bed) begin() (err error) {
	b.before, err = b.broker.sample()
	return err
}

func (b *bed) end() (err error) {
	b.after, err = b.broker.sample()
	return err
}

// result is what the client saw.
type result struct {
	work      float64 // done, in unit
	unit      string  // what processor time is told per
	latencies []time.Duration
	extra     figures
}

// figures are numbers by name; the name ends in the unit.
type figures map[string]float64

// Figures that several loads have.
const (
	cpuPer = "cpu"  // seconds of the broker per unit of work
	rate   = "rate" // units of work per second
	p50    = "p50 ms"
	p99    = "p99 ms"
	p999   = "p99.9 ms"
	worst  = "max ms"
)

// goal is what ours is to reach: a figure as a ratio to that of a contender.
type goal struct {
	figure string
	most   float64 // 0: no bound
	least  float64
	than   string // "" is kafka
}

// figures makes the figures of a run.
func (b *bed) figures(r result) figures {
	f := figures{}
	seconds := b.after.at.Sub(b.before.at).Seconds()
	cpu := b.after.cpu - b.before.cpu
	f["cpu s"] = cpu.Seconds()
	f["wall s"] = seconds
	if r.work > 0 {
		f[rate] = r.work / seconds
		f[cpuPer] = cpu.Seconds() / r.work
		f["disk MB"] = float64(b.after.disk-b.before.disk) / 1e6
	}
	if n := len(r.latencies); n > 0 {
		slices.Sort(r.latencies)
		at := func(q float64) float64 { return float64(r.latencies[min(int(q*float64(n)), n-1)].Nanoseconds()) / 1e6 }
		f[p50], f[p99], f[p999], f[worst] = at(.5), at(.99), at(.999), at(1)
	}
	for name, v := range r.extra {
		f[name] = v
	}
	return f
}
