package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/internal/vfs"
)

// twoDirs is the configuration of a broker with two log directories, and a third for the metadata.
func twoDirs(t *testing.T, base string) Options {
	t.Helper()
	return Options{Config: testConfig(t, filepath.Join(base, "a")+","+filepath.Join(base, "b"), "metadata.log.dir="+filepath.Join(base, "meta"))}
}

// startOn runs a broker until stop is called, or the test ends.
func startOn(t *testing.T, o Options) (s *Server, stop func()) {
	t.Helper()
	o.Logger = testLog(t)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// logDirs draws an answer of DescribeLogDirs: a: t-0 t-1; b!56:, with the copies of what moves in parentheses.
func (c *client) logDirs() string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	var dirs []string
	for _, d := range do[*kmsg.DescribeLogDirsResponse](c, req).Dirs {
		dir := filepath.Base(d.Dir)
		if d.ErrorCode != 0 {
			dir += fmt.Sprint("!", d.ErrorCode)
		}
		dir += ":"
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
				if p.IsFuture {
					name = "(" + name + ")"
				}
				dir += " " + name
			}
		}
		if (d.ErrorCode == 0) != (d.TotalBytes > 0) {
			c.t.Errorf("%s has %d bytes", dir, d.TotalBytes)
		}
		dirs = append(dirs, dir)
	}
	return strings.Join(dirs, "; ")
}

// leaders draws the partitions of a topic: 0=1/0 for leader 1 in epoch 0, with ! and the error, and what is in sync and offline.
func (c *client) leaders(topic string) string {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: &topic}}
	var all []string
	for _, p := range do[*kmsg.MetadataResponse](c, req).Topics[0].Partitions {
		one := fmt.Sprintf("%d=%d/%d isr %v offline %v", p.Partition, p.Leader, p.LeaderEpoch, p.ISR, p.OfflineReplicas)
		if p.ErrorCode != 0 {
			one += fmt.Sprint("!", p.ErrorCode)
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

func (c *client) produceCode(topic string, partition int32) int16 {
	c.t.Helper()
	return do[*kmsg.ProduceResponse](c, produceRequest(11, topic, partition, -1, batch(c.t, 1, 10))).Topics[0].Partitions[0].ErrorCode
}

func (c *client) moveTo(dir, topic string, partitions ...int32) (codes []int16) {
	c.t.Helper()
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Version = 2
	req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: partitions}}}}
	for _, p := range do[*kmsg.AlterReplicaLogDirsResponse](c, req).Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	return codes
}

// eventually waits until a thing is as it should be.
func eventually(t *testing.T, want string, is func() string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if got = is(); got == want {
			return
		}
	}
	t.Fatalf("got %s\nwant %s", got, want)
}

// Partitions are spread over the directories, go where they are told to with all that is in them, and are there after a restart.
func TestSeveralLogDirs(t *testing.T) {
	base := t.TempDir()
	s, stop := startOn(t, twoDirs(t, base))
	c := dial(t, s)
	c.createTopic("t", 4)
	if got := c.logDirs(); got != "a: t-0 t-2; b: t-1 t-3" {
		t.Fatal(got)
	}
	for i := range int32(4) {
		c.produce("t", i, batch(t, 3, 100))
	}
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	for _, row := range []struct {
		dir, topic string
		partition  int32
		want       int16
	}{{"/nowhere", "t", 0, 57}, {b + "/", "t", 0, 57}, {b, "nope", 0, 3}, {b, "t", 9, 3}, {a, "t", 0, 0}, {b, "t", 1, 0}} {
		if got := c.moveTo(row.dir, row.topic, row.partition); got[0] != row.want {
			t.Errorf("%+v: %v", row, got)
		}
	}
	if got := c.moveTo(b, "t", 0, 2); fmt.Sprint(got) != "[0 0]" {
		t.Fatal(got)
	}
	eventually(t, "a:; b: t-0 t-1 t-2 t-3", c.logDirs)
	eventually(t, "0", func() string { return fmt.Sprint(c.produceCode("t", 0)) })
	if got := s.replicas.Get("t", 0).Offsets().End; got != 4 {
		t.Errorf("t-0 ends at %d", got)
	}
	c.moveTo(a, "t", 3)
	eventually(t, "a: t-3; b: t-0 t-1 t-2", c.logDirs)
	eventually(t, "true", func() string {
		return fmt.Sprint(s.image().Topic("t").Partitions[3].Directory(1) == s.replicas.IDs()[0])
	})
	c.createTopic("u", 3) // where there are fewest
	if got := c.logDirs(); got != "a: t-3 u-0 u-1 u-2; b: t-0 t-1 t-2" {
		t.Error(got)
	}
	stop()
	s, _ = startOn(t, twoDirs(t, base))
	c = dial(t, s)
	if got := c.logDirs(); got != "a: t-3 u-0 u-1 u-2; b: t-0 t-1 t-2" {
		t.Errorf("after a restart: %s", got)
	}
	for i, want := range []int64{4, 3, 3, 3} {
		if got := c.produce("t", int32(i), batch(t, 1, 10)); got != want {
			t.Errorf("t-%d goes on at %d", i, got)
		}
	}
}

// A coordinator's partition moves with its groups and transactions.
func TestCoordinatorsMove(t *testing.T) {
	base := t.TempDir()
	s, _ := startOn(t, twoDirs(t, base))
	c := dial(t, s)
	c.createTopic("t", 1)
	id, epoch := c.initProducer("tx")
	c.findCoordinator()
	for _, dir := range []string{"a", "b", "a"} {
		for _, topic := range []string{offsetsTopic, transactionsTopic} {
			if got := c.moveTo(filepath.Join(base, dir), topic, 0, 1); fmt.Sprint(got) != "[0 0]" {
				t.Fatalf("%s: %v", topic, got)
			}
		}
		other := map[string]string{"a": "b", "b": "a"}[dir]
		eventually(t, "true", func() string {
			return fmt.Sprint(!strings.Contains(strings.Split(c.logDirs(), "; ")[strings.IndexByte("ab", other[0])], "__"))
		})
	}
	eventually(t, "true", func() string {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, new("tx"), 60000
		resp := do[*kmsg.InitProducerIDResponse](c, req)
		return fmt.Sprint(resp.ErrorCode == 0 && resp.ProducerID == id && resp.ProducerEpoch > epoch)
	})
}

// What Apache Kafka answers when one of two directories is gone at the start, and when it is back.
func TestLogDirThatIsGoneAtTheStart(t *testing.T) {
	base := t.TempDir()
	s, stop := startOn(t, twoDirs(t, base))
	c := dial(t, s)
	c.createTopic("t", 2)
	c.produce("t", 0, batch(t, 1, 10))
	c.produce("t", 1, batch(t, 1, 10))
	stop()
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	if err := os.Rename(b, b+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s, stop = startOn(t, twoDirs(t, base))
	c = dial(t, s)
	if got := c.leaders("t"); got != "0=1/2 isr [1] offline []; 1=-1/1 isr [] offline [1]!5" {
		t.Error(got)
	}
	if got := c.logDirs(); got != "a: t-0; b!56:" {
		t.Error(got)
	}
	if got := fmt.Sprint(c.produceCode("t", 0), c.produceCode("t", 1)); got != "0 6" {
		t.Error(got)
	}
	fetched := do[*kmsg.FetchResponse](c, fetchRequest(11, "t", 0, 1)).Topics[0].Partitions[0]
	if fetched.ErrorCode != 6 || fetched.HighWatermark != -1 {
		t.Errorf("%+v", fetched)
	}
	if got := fmt.Sprint(c.moveTo(a, "t", 0, 1), c.moveTo(b, "t", 0, 1)); got != "[0 9] [56 56]" {
		t.Error(got)
	}
	parts := kmsg.NewPtrDescribeTopicPartitionsRequest()
	parts.ResponsePartitionLimit, parts.Topics = 10, []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
	if p := do[*kmsg.DescribeTopicPartitionsResponse](c, parts).Topics[0].Partitions[1]; p.LeaderID != -1 || len(p.ISR) > 0 || fmt.Sprint(p.EligibleLeaderReplicas, p.OfflineReplicas) != "[1] [1]" {
		t.Errorf("%+v", p)
	}
	c.createTopic("u", 2)
	if got := c.logDirs(); got != "a: t-0 u-0 u-1; b!56:" {
		t.Error(got)
	}
	stop()
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b+".kept", b); err != nil {
		t.Fatal(err)
	}
	s, _ = startOn(t, twoDirs(t, base))
	c = dial(t, s)
	if got := c.leaders("t"); got != "0=1/4 isr [1] offline []; 1=1/2 isr [1] offline []" {
		t.Error(got)
	}
	if got := c.produce("t", 1, batch(t, 1, 10)); got != 1 {
		t.Errorf("what the directory had is gone: offset %d", got)
	}
}

// A directory that fails takes its partitions with it; the others go on.
func TestLogDirThatFails(t *testing.T) {
	base := t.TempDir()
	var bad atomic.Bool
	b := filepath.Join(base, "b")
	o := twoDirs(t, base)
	o.FS = vfs.Inject(vfs.OS, func(op vfs.Op) error {
		if bad.Load() && strings.HasPrefix(op.Name, b) {
			return syscall.EIO
		}
		return nil
	})
	s, stop := startOn(t, o)
	c := dial(t, s)
	c.createTopic("t", 4)
	for i := range int32(4) {
		c.produce("t", i, batch(t, 1, 10))
	}
	bad.Store(true)
	if got := c.produceCode("t", 1); got != 56 {
		t.Errorf("produced to a directory that fails: %d", got)
	}
	eventually(t, "0=1/0 isr [1] offline []; 1=-1/1 isr [] offline [1]!5; 2=1/0 isr [1] offline []; 3=-1/1 isr [] offline [1]!5", func() string { return c.leaders("t") })
	if got := c.logDirs(); got != "a: t-0 t-2; b!56:" {
		t.Error(got)
	}
	if got := fmt.Sprint(c.produceCode("t", 0), c.produceCode("t", 2), c.produceCode("t", 3)); got != "0 0 56" {
		t.Error(got)
	}
	stop()
	bad.Store(false)
	s, _ = startOn(t, twoDirs(t, base))
	c = dial(t, s)
	for i, want := range []int64{2, 1, 2, 1} {
		if got := c.produce("t", int32(i), batch(t, 1, 10)); got != want {
			t.Errorf("t-%d goes on at %d", i, got)
		}
	}
}

// Without a log directory that works there is no going on; what was acknowledged is there after a restart.
func TestTheOnlyLogDirFails(t *testing.T) {
	base := t.TempDir()
	var bad atomic.Bool
	o := Options{Config: testConfig(t, filepath.Join(base, "a"), "metadata.log.dir="+filepath.Join(base, "meta"))}
	o.FS = vfs.Inject(vfs.OS, func(op vfs.Op) error {
		if bad.Load() {
			return syscall.EIO
		}
		return nil
	})
	s, stop := startOn(t, o)
	c := dial(t, s)
	c.createTopic("t", 1)
	c.produce("t", 0, batch(t, 1, 10))
	bad.Store(true)
	if got := c.produceCode("t", 0); got != 56 {
		t.Errorf("produced to a directory that fails: %d", got)
	}
	if err := <-s.Failed(); !strings.Contains(err.Error(), "all log directories have failed") {
		t.Error(err)
	}
	stop()
	bad.Store(false)
	s, _ = startOn(t, o)
	if got := dial(t, s).produce("t", 0, batch(t, 1, 10)); got != 1 {
		t.Errorf("what was acknowledged is gone: offset %d", got)
	}
}
