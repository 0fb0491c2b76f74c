package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// startLoads need brokers of their own: they start, stop and kill them.
func startLoads(crowd int) []load {
	fast := []goal{{figure: "empty s", most: .1}, {figure: "clean s", most: .1}, {figure: "killed s", most: .1}}
	return []load{
		{name: "start/empty", about: "from exec to the first acknowledged record: empty folder, after a clean stop, after SIGKILL", alone: startOnce, goals: fast},
		{name: "start/10GiB", about: "the same with 10 GiB of records", alone: startFull, goals: fast[1:]},
		{name: "idle/empty", about: "no topics, no clients, 20 s", alone: idle,
			goals: []goal{{figure: "idle %", most: .05}, {figure: "memory MiB", most: .1}}},
		{name: fmt.Sprint("partitions/", crowd), about: fmt.Sprintf("a topic of %d partitions", crowd),
			alone: func(ctx context.Context, r *runner, c contender, dir string) (figures, error) {
				return crowded(ctx, r, c, dir, crowd)
			},
			goals: []goal{
				{figure: "create s", most: .1}, {figure: "KiB/partition", most: .21}, {figure: "files", most: .05}, {figure: "metadata ms", most: .3},
				{figure: "clean s", most: .1}, {figure: "killed s", most: .1},
			}},
	}
}

// age is for how long the broker's process has run.
func (b *broker) age() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const startTime, ticksPerSecond = 19, 100
	ticks, err := strconv.ParseInt(fields[startTime], 10, 64)
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	const bootTime = 7 // CLOCK_BOOTTIME, by Linux's number: package unix has the name on Linux only
	if err := unix.ClockGettime(bootTime, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano() - ticks*int64(time.Second/ticksPerSecond)), nil
}

// firstRecord produces one record to a topic as soon as the broker takes it, and tells how old the broker is then.
func (b *broker) firstRecord(ctx context.Context, topic string) (seconds float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	produce, err := produceFrame(topic, 0, -1, []byte("value"), 1)
	if err != nil {
		return 0, err
	}
	for {
		if err = b.tryRecord(ctx, topic, produce); err == nil {
			age, err := b.age()
			return age.Seconds(), err
		}
		if e := pause(ctx, lookEvery); e != nil {
			return 0, errors.Join(e, err)
		}
	}
}

func (b *broker) tryRecord(ctx context.Context, topic string, produce []byte) error {
	w, err := dial(ctx, b.address())
	if err != nil {
		return err
	}
	defer w.close()
	w.conn.SetDeadline(time.Now().Add(startPatience))
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.AllowAutoTopicCreation = 9, true
	meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	if _, err := w.ask(meta); err != nil {
		return err
	}
	for range 100 {
		if err := w.send(produce); err != nil {
			return err
		}
		answer, err := w.receive()
		if err != nil {
			return err
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 9
		if err := decode(answer, resp); err != nil {
			return err
		}
		if resp.Topics[0].Partitions[0].ErrorCode == 0 {
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
	return kerr.NotLeaderForPartition
}

// startOnce is a start on an empty folder, one after a clean stop and one after SIGKILL.
func startOnce(ctx context.Context, _ *runner, c contender, dir string) (figures, error) {
	f := figures{}
	b, err := c.start(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	if f["empty s"], err = b.firstRecord(ctx, "first"); err != nil {
		return nil, errors.Join(err, b.stop(syscall.SIGKILL))
	}
	return f, restarts(ctx, b, "first", f)
}

// restarts stops the broker, starts it, kills it, starts it, and leaves it dead.
func restarts(ctx context.Context, b *broker, topic string, f figures) error {
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"clean s", syscall.SIGTERM}, {"killed s", syscall.SIGKILL}} {
		if end.signal == syscall.SIGKILL {
			if err := pause(ctx, time.Second); err != nil {
				return err
			}
		}
		err := b.stop(end.signal)
		if err != nil {
			return err
		}
		if b, err = b.contender.start(ctx, b.dir, nil); err != nil {
			return err
		}
		if f[end.name], err = b.firstRecord(ctx, topic); err != nil {
			return errors.Join(err, b.stop(syscall.SIGKILL))
		}
	}
	return b.stop(syscall.SIGKILL)
}

// startFull is restarts with much data.
func startFull(ctx context.Context, r *runner, c contender, dir string) (figures, error) {
	b, err := c.start(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	on := &bed{broker: b, address: c.address(), scale: r.scale}
	topic, err := on.createTopic(ctx, 12)
	if err == nil {
		_, err = consumeLoad{bytes: 10 << 30, partitions: 12}.fill(ctx, on, topic)
	}
	if err != nil {
		return nil, errors.Join(err, b.stop(syscall.SIGKILL))
	}
	f := figures{}
	return f, restarts(ctx, b, topic, f)
}

// idle is a broker that nobody uses.
func idle(ctx context.Context, r *runner, c contender, dir string) (f figures, err error) {
	b, err := c.start(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.stop(syscall.SIGTERM)) }()
	const settle, watch = 10 * time.Second, 20 * time.Second
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before, err := b.sample()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Duration(float64(watch)*r.scale)); err != nil {
		return nil, err
	}
	after, err := b.sample()
	if err != nil {
		return nil, err
	}
	now, _, err := b.memory()
	return figures{"idle %": 100 * (after.cpu - before.cpu).Seconds() / after.at.Sub(before.at).Seconds(), "memory MiB": now}, err
}

// crowded is a broker with one topic of many partitions, with a record in each. `bench partitions` tells more of it.
func crowded(ctx context.Context, r *runner, c contender, dir string, n int) (f figures, err error) {
	b, err := c.start(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	running := b
	defer func() {
		if err != nil {
			err = errors.Join(err, running.stop(syscall.SIGKILL))
		}
	}()
	const settle = 10 * time.Second
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	before, _, err := b.memory()
	if err != nil {
		return nil, err
	}
	on := &bed{broker: b, address: c.address()}
	began := time.Now()
	topic, err := on.createTopic(ctx, n)
	if err != nil {
		return nil, err
	}
	f = figures{"create s": time.Since(began).Seconds()}
	if f["metadata ms"], err = metadataTime(ctx, c.address()); err != nil {
		return nil, err
	}
	if err := fillEach(ctx, c.address(), topic, n); err != nil {
		return nil, err
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	after, _, err := b.memory()
	if err != nil {
		return nil, err
	}
	files, err := b.descriptors()
	if err != nil {
		return nil, err
	}
	f["KiB/partition"], f["files"] = (after-before)*1024/float64(n), float64(files)
	return f, restarts(ctx, b, topic, f)
}

// metadataTime is the median of some requests for the metadata of all topics.
func metadataTime(ctx context.Context, address string) (ms float64, err error) {
	w, err := dial(ctx, address)
	if err != nil {
		return 0, err
	}
	defer w.close()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	ask := frame(req)
	var times []float64
	for range 9 {
		began := time.Now()
		if err := w.send(ask); err != nil {
			return 0, err
		}
		if _, err := w.receive(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// fillEach produces a record to each partition.
func fillEach(ctx context.Context, address, topic string, n int) error {
	w, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer w.close()
	for p := range n {
		f, err := produceFrame(topic, int32(p), 1, []byte("value"), 1)
		if err != nil {
			return err
		}
		if _, err := produceOne(w, f, nil, 1); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}
