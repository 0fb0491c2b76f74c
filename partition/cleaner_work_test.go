package partition

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// cleanerNode is a set whose cleaner runs on the bubble's time.
func cleanerNode(t *testing.T, settings []string, topic ...string) *node {
	t.Helper()
	n := &node{t: t, fsys: vfs.NewMem(), logs: &logBuffer{}, now: time.Now(), topic: topicConfig(t, append([]string{
		"cleanup.policy", "compact", "internal.segment.bytes", "600"}, topic...)...)}
	var err error
	n.Set, err = OpenSet(Options{FS: n.fsys, Dir: "/data", NodeID: 1, Config: brokerConfig(t, settings...), Registerer: prometheus.NewRegistry(),
		TopicConfig: func(string) *config.Topic { return n.topic }, Logger: slog.New(slog.NewTextHandler(n.logs, nil))}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// put appends one record of about 100 bytes with a timestamp of now.
func put(t *testing.T, p *Partition, key, value string) Appended {
	t.Helper()
	a, err := p.Append(AppendRequest{Batch: spec{keys: []string{key}, times: []int64{time.Now().UnixMilli()}, value: value + strings.Repeat(".", 30)}.build(t),
		Acks: -1, ExpectEpoch: -1, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (n *node) cleanings() int { return strings.Count(n.logs.String(), "msg=cleaned ") }

// wait lets time pass and the goroutines do what is due.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestCleanerWakes: the cleaner looks when a segment was begun, not more often than log.cleaner.backoff.ms, and then not again.
func TestCleanerWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, nil)
		defer n.Abandon()
		p := n.lead()
		wait(20 * time.Second)
		looked := func() time.Time {
			f := &n.shared.cleaner.figures
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.look
		}
		if !looked().IsZero() {
			t.Error("it looked at nothing")
		}
		for i := range 20 {
			put(t, p, "key", fmt.Sprint(i))
		}
		synctest.Wait()
		if n.cleanings() == 0 {
			t.Fatalf("it was not cleaned at once: %s", n.logs)
		}
		before := n.cleanings()
		for i := range 20 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(14 * time.Second)
		if n.cleanings() != before {
			t.Error("it was cleaned again before its pause was over")
		}
		wait(2 * time.Second)
		if n.cleanings() == before {
			t.Error("it was not cleaned when its pause was over")
		}
		last := looked()
		wait(100 * time.Hour)
		if looked() != last {
			t.Error("the cleaner looks though nothing happens")
		}
		if got := string(readFile(t, n.fsys, "/data/cleaner-offset-checkpoint")); got != fmt.Sprintf("0\n1\nt 0 %d\n", p.log.Segments()[len(p.log.Segments())-1].Base) {
			t.Errorf("checkpoint %q", got)
		}
		list, position := consume(t, p, ReadCommitted)
		if position != 40 || list[len(list)-1].offset != 39 {
			t.Errorf("%v, %d", list, position)
		}
		if err := n.Delete("t", 0); err != nil {
			t.Fatal(err)
		}
		wait(2 * time.Second)
		if got := string(readFile(t, n.fsys, "/data/cleaner-offset-checkpoint")); got != "0\n0\n" {
			t.Errorf("checkpoint %q", got)
		}
	})
}

// TestCleanerWaits: an open transaction, min.compaction.lag.ms, a dirty ratio: what keeps a log from being cleaned, and that it is as soon as it may.
func TestCleanerWaits(t *testing.T) {
	t.Run("transaction", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := cleanerNode(t, nil)
			defer n.Abandon()
			p := n.lead()
			g, _, err := p.Verify(9, 0, 0, false, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Append(AppendRequest{Batch: spec{pid: 9, txn: true, keys: []string{"open"}, times: []int64{time.Now().UnixMilli()}}.build(t), Guard: g, ExpectEpoch: -1, Now: time.Now()}); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				put(t, p, "key", fmt.Sprint(i))
			}
			wait(time.Hour)
			if n.cleanings() > 0 {
				t.Error("cleaned above the last stable offset")
			}
			endTxn(t, p, 9, 0, true)
			wait(16 * time.Second)
			if n.cleanings() != 1 {
				t.Errorf("%d cleanings", n.cleanings())
			}
		})
	})
	t.Run("min lag", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := cleanerNode(t, nil, "min.compaction.lag.ms", "3600000")
			defer n.Abandon()
			p := n.lead()
			for i := range 20 {
				put(t, p, "key", fmt.Sprint(i))
			}
			wait(59 * time.Minute)
			if n.cleanings() > 0 {
				t.Error("cleaned too early")
			}
			wait(2 * time.Minute)
			if n.cleanings() != 1 {
				t.Errorf("%d cleanings", n.cleanings())
			}
		})
	})
	t.Run("ratio and max lag", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := cleanerNode(t, nil, "min.cleanable.dirty.ratio", "1", "max.compaction.lag.ms", "3600000")
			defer n.Abandon()
			p := n.lead()
			for i := range 20 {
				put(t, p, "key", fmt.Sprint(i))
			}
			wait(59 * time.Minute)
			if n.cleanings() > 0 {
				t.Error("cleaned below the ratio")
			}
			wait(2 * time.Minute)
			if n.cleanings() != 1 {
				t.Errorf("%d cleanings", n.cleanings())
			}
		})
	})
}

// TestCleanerFollowsPolicies: compact, delete and both may be switched while the broker runs.
func TestCleanerFollowsPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, nil, "cleanup.policy", "delete", "retention.ms", "-1")
		defer n.Abandon()
		p := n.lead()
		if _, err := p.Append(AppendRequest{Batch: spec{keys: []string{""}, times: []int64{time.Now().UnixMilli()}}.build(t), ExpectEpoch: -1, Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(time.Hour)
		if n.cleanings() > 0 || p.Size() < 20*100 {
			t.Error("cleaned")
		}
		with := func(more ...string) *config.Topic {
			return topicConfig(t, append([]string{"internal.segment.bytes", "600"}, more...)...)
		}
		n.SetConfig("t", with("cleanup.policy", "compact"))
		wait(16 * time.Second)
		if n.cleanings() != 1 || !strings.Contains(n.logs.String(), `"without key"=1`) {
			t.Errorf("%d cleanings: %s", n.cleanings(), n.logs)
		}
		n.SetConfig("t", with("cleanup.policy", "delete", "retention.ms", "-1"))
		for i := range 20 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(time.Hour)
		if n.cleanings() != 1 {
			t.Error("cleaned")
		}
		n.SetConfig("t", with("cleanup.policy", "compact,delete", "retention.ms", "18000000"))
		wait(16 * time.Second)
		if n.cleanings() != 2 || p.Offsets().Start != 0 {
			t.Errorf("%d cleanings, start %d", n.cleanings(), p.Offsets().Start)
		}
		wait(6 * time.Hour)
		if o := p.Offsets(); o.Start != o.End || o.End != 41 {
			t.Errorf("retention left %+v", o)
		}
	})
}

// TestCleanerSettings: threads, the throttle and the pause follow the broker's settings.
func TestCleanerSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, []string{"log.cleaner.threads=0"})
		defer n.Abandon()
		p := n.lead()
		for i := range 30 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(time.Hour)
		if n.cleanings() > 0 {
			t.Error("no thread cleaned")
		}
		size := p.Size()
		n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=3", fmt.Sprintf("log.cleaner.io.max.bytes.per.second=%d", size/10)))
		wait(5 * time.Second)
		if n.cleanings() > 0 {
			t.Error("faster than the throttle")
		}
		wait(30 * time.Second)
		if n.cleanings() != 1 {
			t.Errorf("%d cleanings", n.cleanings())
		}
		for i := range 60 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(18 * time.Second) // it has begun
		n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=0"))
		synctest.Wait()
		before := n.cleanings()
		wait(time.Hour)
		if n.cleanings() != before {
			t.Error("no thread cleaned")
		}
		n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=1"))
		wait(16 * time.Second)
		if n.cleanings() != before+1 {
			t.Errorf("%d cleanings, %d before", n.cleanings(), before)
		}
		list, _ := consume(t, p, ReadCommitted)
		if last := list[len(list)-1]; last.offset != 89 || len(list) > 10 {
			t.Errorf("%d records, the last %+v", len(list), last)
		}
	})
	n, err := OpenSet(Options{FS: vfs.NewMem(), Dir: "/data", NodeID: 1, Config: brokerConfig(t, "log.cleaner.enable=false")}, start)
	if err != nil || n.shared.cleaner != nil {
		t.Fatal(err)
	}
	n.Abandon()
}

// TestUncleanable: a log that can't be cleaned is said once and left alone, and counted; the others are cleaned.
func TestUncleanable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, []string{"log.cleaner.backoff.ms=1000"})
		defer n.Abandon()
		bad := n.lead()
		good, err := n.Create("good", protocol.UUID{7}, 0, n.topic, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := good.Lead(0, []int32{1}, []int32{1}); err != nil {
			t.Fatal(err)
		}
		put(t, bad, "key", "damaged")
		f, err := n.fsys.OpenFile("/data/t-0/00000000000000000000.log", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, 80); err != nil {
			t.Fatal(err)
		}
		f.Close()
		for i := range 40 {
			put(t, bad, "key", fmt.Sprint(i))
			put(t, good, "key", fmt.Sprint(i))
			wait(time.Second)
		}
		if got := strings.Count(n.logs.String(), "can't be cleaned"); got != 1 {
			t.Errorf("said %d times", got)
		}
		if bad.Err() != nil || good.Size() > 2000 || bad.Size() < 40*80 {
			t.Errorf("%v, %d and %d bytes", bad.Err(), bad.Size(), good.Size())
		}
		figures := map[string]float64{}
		families, err := n.registerer.(*prometheus.Registry).Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if m := f.Metric[0]; strings.HasPrefix(f.GetName(), "oncelog_cleaner_") {
				figures[strings.TrimPrefix(f.GetName(), "oncelog_cleaner_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		if figures["uncleanable_partitions"] != 1 || figures["runs_total"] < 5 || figures["read_bytes_total"] <= figures["written_bytes_total"] || len(figures) != len(cleanerDescs) {
			t.Errorf("%v", figures)
		}
	})
}

// TestFullDiskDelaysCleaning: without space nothing is cleaned, which is said once; the log goes on, and is cleaned when there is some.
func TestFullDiskDelaysCleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, []string{"log.cleaner.threads=0", "log.cleaner.backoff.ms=1000"})
		defer n.Abandon()
		p := n.lead()
		for i := range 40 {
			put(t, p, fmt.Sprint("key ", i*(i%2)), fmt.Sprint(i))
		}
		m := n.fsys.(*vfs.Mem)
		_, free, _ := m.Usage("/")
		m.SetCapacity(1<<40 - free + 50)
		n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=1", "log.cleaner.backoff.ms=1000"))
		wait(time.Minute)
		if got := strings.Count(n.logs.String(), "no space left to clean"); got != 1 || n.cleanings() != 0 || p.Err() != nil {
			t.Fatalf("said %d times: %s", got, n.logs)
		}
		m.SetCapacity(0)
		wait(time.Minute)
		if n.cleanings() == 0 {
			t.Errorf("not cleaned: %s", n.logs)
		}
	})
}

// TestInternalTopicsAreRolledEarly: however much is written for a few keys, a coordinator's partition stays small, long before segment.bytes; one in
// which nothing is superseded is rolled a few times and no oftener.
func TestInternalTopicsAreRolledEarly(t *testing.T) {
	for _, keys := range []int{10, math.MaxInt} {
		synctest.Test(t, func(t *testing.T) {
			n := cleanerNode(t, nil)
			defer n.Abandon()
			n.topic = topicConfig(t, "cleanup.policy", "compact", "segment.bytes", "104857600")
			p, err := n.Create("__consumer_offsets", protocol.UUID{8}, 0, n.topic, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
				t.Fatal(err)
			}
			value := strings.Repeat("v", 1000)
			for i := range 20_000 {
				s := spec{keys: []string{fmt.Sprint("key ", i%keys)}, value: value}
				if _, err := p.Append(AppendRequest{Batch: s.build(t), Origin: OriginCoordinator, ExpectEpoch: -1, Now: time.Now()}); err != nil {
					t.Fatal(err)
				}
				if i%100 == 0 {
					wait(time.Second)
				}
			}
			wait(time.Minute)
			segments := p.log.Segments()
			if keys == 10 && (p.Size() > 8<<20 || len(segments) > 4) {
				t.Errorf("%d bytes in %v", p.Size(), segments)
			}
			if keys > 10 && (p.Size() < 20<<20 || len(segments) > 8 || n.cleanings() > 8) {
				t.Errorf("%d bytes in %v, %d cleanings", p.Size(), segments, n.cleanings())
			}
			list, position := consume(t, p, ReadUncommitted)
			if position != 20_000 || list[len(list)-1].offset != 19_999 {
				t.Errorf("read up to %d, %d records", position, len(list))
			}
		})
	}
}

// TestDirtiestIsCleanedFirst: of several logs that are dirty enough, the one with the greater dirty ratio.
func TestDirtiestIsCleanedFirst(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "600", "min.cleanable.dirty.ratio", "0.01"))
	n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=0"))
	c := n.shared.cleaner
	write := func(p *Partition, prefix string) {
		for i := range 40 {
			mustProduce(t, p, spec{keys: []string{fmt.Sprint(prefix, i)}})
		}
	}
	partly := n.lead()
	whole, err := n.Create("whole", protocol.UUID{9}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Lead(0, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	write(partly, "clean ")
	if !n.clean(partly, start) {
		t.Fatal("not dirty")
	}
	write(partly, "new ")
	write(whole, "new ")
	c.touch(partly)
	c.touch(whole)
	c.look(start)
	for _, want := range []*Partition{whole, partly, nil} {
		if p, d, _ := c.take(); p != want {
			t.Fatalf("the next one has a ratio of %v", d.ratio())
		}
	}
}
