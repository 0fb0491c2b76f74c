package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"syscall"
)

// clientGC is how much the heap of the clients, in this process, may grow before it is collected, in percent. Theirs is small, and with Go's 100 a client
// that sends megabytes touches fresh memory for each of them, which costs more than all else that it does, on the cores of the broker.
const clientGC = 800

func main() {
	if len(os.Args) > 1 && os.Args[1] == "limit" {
		exitOn(limitMain(os.Args[2:]))
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(clientGC)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "growth" {
		exitOn(growthMain(ctx, os.Args[2:]))
		return
	}
	var o options
	flag.StringVar(&o.loads, "load", "", "`pattern` of the names of the loads to run; all by default")
	flag.BoolVar(&o.list, "list", false, "list the loads")
	flag.IntVar(&o.rounds, "rounds", 5, "pairs of runs that are counted")
	flag.Float64Var(&o.scale, "scale", 1, "how much of each load is done")
	flag.IntVar(&o.port, "port", 22200, "the first of the ports that brokers listen on; each has ten")
	flag.IntVar(&o.crowd, "partitions", 5000, "partitions of the load that has many")
	flag.StringVar(&o.dir, "dir", "", "`folder` for the brokers' data; the system's temporary one by default")
	flag.StringVar(&o.out, "out", "", "`folder` for results.json, table.txt and chart.svg")
	flag.StringVar(&o.page, "page", "", "`file` to write as a page, with its chart beside it")
	flag.BoolVar(&o.keep, "keep", false, "the page keeps what it tells of loads that are not run")
	flag.Parse()
	exitOn(o.run(ctx))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type options struct {
	loads     string
	list      bool
	rounds    int
	scale     float64
	port      int
	crowd     int
	dir       string
	out, page string
	keep      bool
}

func (o options) run(ctx context.Context) (err error) {
	loads, err := o.selected()
	if err != nil {
		return err
	}
	if o.list {
		for _, l := range loads {
			fmt.Printf("%-24s %s\n", l.name, l.about)
		}
		return nil
	}
	r := &runner{tool: os.Getenv("BENCH_TOOL"), rounds: o.rounds, scale: o.scale, log: os.Stderr}
	if r.dir, err = os.MkdirTemp(o.dir, "compare-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.contenders, err = o.contenders(ctx, r.dir); err != nil {
		return err
	}
	before := loadAverage()
	all, err := r.run(ctx, loads)
	report := newReport(all, before+" to "+loadAverage(), o.scale)
	fmt.Print(report.text())
	if o.out != "" {
		err = errors.Join(err, report.write(o.out))
	}
	if o.page == "" {
		return err
	}
	if o.keep {
		err = errors.Join(err, report.keep(o.page, o.all()))
	}
	return errors.Join(err, report.writePage(o.page))
}

// all are the loads that there are, in the order of a report.
func (o options) all() []load {
	return slices.Concat(produceLoads(), consumeLoads(), singleLoads(), latencyLoads(), txnLoads(), offsetLoads(), javaLoads(), flushLoads(), groupLoads(), startLoads(o.crowd))
}

// selected are the loads whose name fits.
func (o options) selected() (loads []load, err error) {
	pattern, err := regexp.Compile(o.loads)
	if err != nil {
		return nil, err
	}
	for _, l := range o.all() {
		if pattern.MatchString(l.name) {
			loads = append(loads, l)
		}
	}
	if len(loads) == 0 {
		return nil, fmt.Errorf("no load is named like %q", o.loads)
	}
	return loads, nil
}

// contenders are those that the environment tells how to start.
func (o options) contenders(ctx context.Context, dir string) ([]contender, error) {
	ours := os.Getenv("BENCH_ONCELOG")
	if ours == "" {
		name := filepath.Join(dir, "broker")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", name, "oncelog/cmd/broker").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the broker: %w\n%s", err, out)
		}
		ours = name + " --set listeners=PLAINTEXT://127.0.0.1:{port} --set log.dirs={dir}/data --set http.listener= {settings}"
	}
	list := []contender{{"oncelog", ours, o.port}}
	if kafka := os.Getenv("BENCH_KAFKA"); kafka != "" {
		const portsEach = 10
		list = append([]contender{{"kafka", kafka, o.port + portsEach}}, list...)
	}
	return list, nil
}
