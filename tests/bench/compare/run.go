package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runner takes the contenders through the loads.
type runner struct {
	contenders []contender
	tool       string
	dir        string // for the folders of brokers
	rounds     int
	scale      float64
	log        io.Writer
}

// outcome is all that was measured of a load.
type outcome struct {
	Name, About string
	Unit        string
	When        string               // it was measured, how busy the machine was, and at which scale
	Rounds      []map[string]figures // by contender; that of a limit is "limit"
	goals       []goal
}

// cleanSoon has what a load leaves behind removed right after it, and not in the midst of a later one.
const cleanSoon = "log.segment.delete.delay.ms=500"

// memoryLoad is the name of what is no load: the memory after all that share a process with Kafka's own settings.
const memoryLoad = "memory"

func memoryGoals() []goal { return []goal{{figure: "peak MiB", most: .15}} }

// warmups are rounds that are not counted: a virtual machine compiles what it runs often.
const warmups = 1

// run does the loads, those with the same settings on the same processes.
func (r *runner) run(ctx context.Context, loads []load) (all []outcome, err error) {
	var group []load
	flush := func() error {
		done, err := r.together(ctx, group)
		all, group = append(all, done...), nil
		return err
	}
	for _, l := range loads {
		if l.alone != nil || len(group) > 0 && !slices.Equal(group[0].settings, l.settings) {
			if err := flush(); err != nil {
				return all, err
			}
		}
		if l.alone == nil {
			group = append(group, l)
			continue
		}
		o, err := r.separate(ctx, l)
		if err != nil {
			return all, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, o)
	}
	return all, flush()
}

// together runs loads on one process of each contender.
func (r *runner) together(ctx context.Context, loads []load) (all []outcome, err error) {
	if len(loads) == 0 {
		return nil, nil
	}
	var beds []*bed
	defer func() {
		for _, b := range beds {
			err = errors.Join(err, b.broker.stop(syscall.SIGTERM), os.RemoveAll(b.broker.dir))
		}
	}()
	for _, c := range r.contenders {
		dir, err := os.MkdirTemp(r.dir, c.name+"-")
		if err != nil {
			return nil, err
		}
		b, err := c.start(ctx, dir, append([]string{cleanSoon}, loads[0].settings...))
		if err != nil {
			return nil, err
		}
		beds = append(beds, &bed{broker: b, address: c.address(), tool: r.tool, scale: r.scale})
	}
	for _, l := range loads {
		o, err := r.alternate(ctx, l, beds)
		if errors.Is(err, errNoTool) {
			fmt.Fprintf(r.log, "%s: left out, %v\n", l.name, err)
			continue
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, o)
	}
	if len(loads[0].settings) > 0 {
		return all, nil
	}
	after, err := r.memoryAfter(beds)
	return append(all, after), err
}

// alternate runs one load on all beds in turn.
func (r *runner) alternate(ctx context.Context, l load, beds []*bed) (outcome, error) {
	o := outcome{Name: l.name, About: l.about, goals: l.goals}
	for round := range r.rounds + warmups {
		got := map[string]figures{}
		for _, b := range beds {
			res, err := l.run(ctx, b)
			if err != nil {
				return o, fmt.Errorf("%s: %w", b.broker.name, err)
			}
			o.Unit = res.unit
			got[b.broker.name] = b.figures(res)
		}
		if l.limit != nil {
			f, err := l.limit.run(ctx, r.dir, r.scale)
			if err != nil {
				return o, err
			}
			got["limit"] = f
		}
		if round >= warmups {
			o.Rounds = append(o.Rounds, got)
		}
		r.progress(l.name, round, got)
	}
	return o, nil
}

// memoryAfter is what the loads have left the brokers with.
func (r *runner) memoryAfter(beds []*bed) (outcome, error) {
	o := outcome{Name: memoryLoad, About: "resident memory after the loads above", goals: memoryGoals()}
	got := map[string]figures{}
	for _, b := range beds {
		now, peak, err := b.broker.memory()
		if err != nil {
			return o, err
		}
		got[b.broker.name] = figures{"memory MiB": now, "peak MiB": peak}
	}
	o.Rounds = append(o.Rounds, got)
	r.progress(o.Name, 0, got)
	return o, nil
}

// separate runs a load that starts its own brokers.
func (r *runner) separate(ctx context.Context, l load) (outcome, error) {
	o := outcome{Name: l.name, About: l.about, goals: l.goals}
	for round := range r.rounds {
		got := map[string]figures{}
		for _, c := range r.contenders {
			f, err := r.inFolder(c.name, func(dir string) (figures, error) { return l.alone(ctx, r, c, dir) })
			if err != nil {
				return o, fmt.Errorf("%s: %w", c.name, err)
			}
			got[c.name] = f
		}
		o.Rounds = append(o.Rounds, got)
		r.progress(l.name, round+warmups, got)
	}
	return o, nil
}

func (r *runner) inFolder(name string, f func(dir string) (figures, error)) (figures, error) {
	dir, err := os.MkdirTemp(r.dir, name+"-")
	if err != nil {
		return nil, err
	}
	got, err := f(dir)
	return got, errors.Join(err, os.RemoveAll(dir))
}

// progress tells what a round gave.
func (r *runner) progress(name string, round int, got map[string]figures) {
	if round < warmups {
		return
	}
	for _, who := range sortedKeys(got) {
		f := got[who]
		var line strings.Builder
		for _, k := range sortedKeys(f) {
			fmt.Fprintf(&line, "  %s %s", k, number(f[k]))
		}
		fmt.Fprintf(r.log, "%s %-20s %-9s%s\n", time.Now().Format(time.TimeOnly), name, who, line.String())
	}
}
