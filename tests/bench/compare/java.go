package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// javaLoad is one of Kafka's own performance tools.
type javaLoad struct {
	class string
	args  func(b *bed, topic string, n int) []string
	fill  bool // the topic has records before
	bytes int  // of a record
	n     int  // records at full scale
	unit  string
	parse func(out string) (figures, error)
}

func (l javaLoad) run(ctx context.Context, b *bed) (result, error) {
	if b.tool == "" {
		return result{}, errNoTool
	}
	topic, err := b.createTopic(ctx, 12)
	if err != nil {
		return result{}, err
	}
	n := b.n(l.n)
	if l.fill {
		if _, err := (consumeLoad{bytes: l.n * l.bytes, partitions: 12}).fill(ctx, b, topic); err != nil {
			return result{}, err
		}
	}
	command := append(strings.Fields(b.tool), l.class)
	command = append(command, l.args(b, topic, n)...)
	if err := b.begin(); err != nil {
		return result{}, err
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err := errors.Join(err, b.end()); err != nil {
		return result{}, fmt.Errorf("%s: %w\n%s", l.class, err, out)
	}
	r := result{work: float64(n), unit: l.unit}
	if l.unit == "GB" {
		r.work = float64(n*l.bytes) / 1e9
	}
	if r.extra, err = l.parse(string(out)); err != nil {
		return result{}, fmt.Errorf("%s: %w\n%s", l.class, err, out)
	}
	return r, b.deleteTopic(ctx, topic)
}

// errNoTool leaves a load out.
var errNoTool = errors.New("BENCH_TOOL is not set")

var (
	producerLine = regexp.MustCompile(`records sent, .* records/sec \(([0-9.]+) MB/sec\), .* ([0-9]+) ms 50th, .* ([0-9]+) ms 99th, ([0-9]+) ms 99.9th`)
	latencyLine  = regexp.MustCompile(`Percentiles: 50th = ([0-9.]+), 99th = ([0-9.]+), 99.9th = ([0-9.]+)`)
)

// parseProducer reads the last line of ProducerPerformance, whose MB are 2^20 bytes.
func parseProducer(out string) (figures, error) {
	all := producerLine.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return nil, errors.New("no last line")
	}
	v := numbers(all[len(all)-1][1:])
	return figures{rate: v[0] * (1 << 20) / 1e9, p50: v[1], p99: v[2], p999: v[3]}, nil
}

// parseConsumer reads the last line of ConsumerPerformance: the sixth column is what was fetched in MB of 2^20 bytes a second.
func parseConsumer(out string) (figures, error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	columns := strings.Split(lines[len(lines)-1], ", ")
	if len(columns) < 10 {
		return nil, errors.New("no last line")
	}
	v := numbers(columns[8:9])
	return figures{rate: v[0] * (1 << 20) / 1e9}, nil
}

// parseLatency reads what EndToEndLatency prints, in ms.
func parseLatency(out string) (figures, error) {
	found := latencyLine.FindStringSubmatch(out)
	if found == nil {
		return nil, errors.New("no percentiles")
	}
	v := numbers(found[1:])
	return figures{p50: v[0], p99: v[1], p999: v[2]}, nil
}

func numbers(texts []string) (list []float64) {
	for _, t := range texts {
		v, _ := strconv.ParseFloat(strings.TrimSpace(t), 64)
		list = append(list, v)
	}
	return list
}

func javaLoads() []load {
	const tools = "org.apache.kafka.tools."
	produce := javaLoad{class: tools + "ProducerPerformance", bytes: 1 << 10, n: 1 << 20, unit: "GB", parse: parseProducer,
		args: func(b *bed, topic string, n int) []string {
			return []string{"--topic", topic, "--num-records", strconv.Itoa(n), "--record-size", "1024", "--throughput", "-1",
				"--bootstrap-server", b.address, "--command-property", "linger.ms=5", "--command-property", "batch.size=131072"}
		}}
	consume := javaLoad{class: tools + "ConsumerPerformance", bytes: 1 << 10, n: 1 << 20, unit: "GB", fill: true, parse: parseConsumer,
		args: func(b *bed, topic string, n int) []string {
			return []string{"--topic", topic, "--num-records", strconv.Itoa(n), "--bootstrap-server", b.address}
		}}
	latency := javaLoad{class: tools + "EndToEndLatency", bytes: 100, n: 20000, unit: "record", parse: parseLatency,
		args: func(b *bed, topic string, n int) []string {
			return []string{"--bootstrap-server", b.address, "--topic", topic, "--num-records", strconv.Itoa(n), "--producer-acks", "all", "--record-size", "100"}
		}}
	return []load{
		{name: "java/produce", about: "ProducerPerformance, 1 KiB records, 12 partitions, linger 5 ms", run: produce.run, goals: []goal{{figure: cpuPer, most: .4}}},
		{name: "java/consume", about: "ConsumerPerformance, 1 KiB records, 12 partitions", run: consume.run, goals: []goal{{figure: cpuPer, most: 1}}},
		{name: "java/latency", about: "EndToEndLatency, one record at a time, acks=all", run: latency.run,
			goals: []goal{{figure: cpuPer, most: .3}, {figure: p50, most: .7}, {figure: p99, most: .33}}},
	}
}
