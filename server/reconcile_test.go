package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/partition"
)

// converging is a reconciler over a real controller and real replicas, whose hooks are noted.
type converging struct {
	t        *testing.T
	config   *config.Broker
	ctrl     *cluster.Controller
	replicas *partition.Dirs
	r        *reconciler
	notes    []string
}

func newConverging(t *testing.T, fsys vfs.FS, raftDir string) *converging {
	t.Helper()
	discard := slog.New(slog.DiscardHandler)
	c := &converging{t: t}
	cfg, _, err := config.Load(config.LoadOptions{Set: []string{"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data"}})
	if err != nil {
		t.Fatal(err)
	}
	c.config = cfg
	if c.replicas, err = partition.OpenDirs(partition.Options{FS: fsys, NodeID: 1, Config: cfg, Logger: discard}, []string{"/data"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if c.ctrl, err = cluster.Open(cluster.Options{NodeID: 1, Dir: raftDir, Config: cfg, Logger: discard}); err != nil {
		t.Fatal(err)
	}
	r := cluster.Registration{BrokerID: 1, ClusterID: "c"}
	r.Incarnation[0] = byte(c.ctrl.Image().Index)
	if _, err := c.ctrl.Register(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	note := func(format string, args ...any) { c.notes = append(c.notes, fmt.Sprintf(format, args...)) }
	c.r = newReconciler(1, c.ctrl, c.replicas, reconcileHooks{
		load: func(topic string, index, epoch int32, _ *partition.Partition) {
			note("load %s-%d at %d", topic, index, epoch)
		},
		unload:        func(topic string, index, epoch int32) { note("unload %s-%d at %d", topic, index, epoch) },
		topicsDeleted: func(names []string) { note("deleted %v", names) },
		setConfig: func(clusterDefault, perBroker map[string]string) *config.Broker {
			note("config %v %v", clusterDefault, perBroker)
			return c.config.WithDynamic(clusterDefault, perBroker)
		},
		topicConfig: func(name string) *config.Topic {
			return c.config.Topic(c.ctrl.Image().Config(kmsg.ConfigResourceTypeTopic, name))
		},
		assign: func([]cluster.Placement) error { return nil },
	}, discard)
	c.r.start()
	return c
}

func (c *converging) close() {
	c.t.Helper()
	c.r.stop()
	if err := c.ctrl.Close(); err != nil {
		c.t.Error(err)
	}
	if err := c.replicas.Close(); err != nil {
		c.t.Error(err)
	}
}

// state waits until the newest image is true and shows the replicas, and what was noted since the last time.
func (c *converging) state() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	if err := c.r.await(ctx, c.ctrl.Image().Index); err != nil {
		c.t.Fatal(err)
	}
	var lines []string
	for p := range c.replicas.All() {
		lines = append(lines, fmt.Sprintf("%s-%d at %d", p.Topic(), p.Index(), p.Offsets().LeaderEpoch))
	}
	slices.Sort(lines)
	notes := c.notes
	c.notes = nil
	return strings.Join(append(lines, notes...), "\n")
}

func (c *converging) expect(want string) {
	c.t.Helper()
	if got := c.state(); got != strings.TrimSpace(want) {
		c.t.Errorf("state is\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

func (c *converging) create(names ...string) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(4)
	req.TimeoutMillis = 1000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 2, 1
		req.Topics = append(req.Topics, t)
	}
	for _, t := range c.ctrl.CreateTopics(c.t.Context(), req).Topics {
		if t.ErrorCode != 0 {
			c.t.Fatal(t.Topic, t.ErrorCode)
		}
	}
}

func (c *converging) delete(names ...string) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(5)
	req.TimeoutMillis, req.TopicNames = 1000, names
	for _, t := range c.ctrl.DeleteTopics(c.t.Context(), req).Topics {
		if t.ErrorCode != 0 {
			c.t.Fatal(*t.Topic, t.ErrorCode)
		}
	}
}

func (c *converging) set(kind kmsg.ConfigResourceType, name, key, value string) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	k := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	k.Name, k.Value = key, &value
	r.Configs = append(r.Configs, k)
	req.Resources = append(req.Resources, r)
	for _, r := range c.ctrl.IncrementalAlterConfigs(c.t.Context(), req).Resources {
		if r.ErrorCode != 0 {
			c.t.Fatal(r.ResourceName, *r.ErrorMessage)
		}
	}
}

// TestReconcile: replicas, coordinators and configs follow the metadata, through restarts.
func TestReconcile(t *testing.T) {
	fsys, dir := vfs.NewMem(), t.TempDir()
	c := newConverging(t, fsys, dir)
	c.expect("config map[min.insync.replicas:1] map[]")
	c.create("a", "__consumer_offsets")
	c.expect(`
__consumer_offsets-0 at 0
__consumer_offsets-1 at 0
a-0 at 0
a-1 at 0
load __consumer_offsets-0 at 0
load __consumer_offsets-1 at 0`)
	c.set(kmsg.ConfigResourceTypeBroker, "1", "log.retention.ms", "5")
	c.set(kmsg.ConfigResourceTypeTopic, "a", "retention.ms", "7")
	c.set(kmsg.ConfigResourceTypeGroupConfig, "g", "consumer.session.timeout.ms", "46000")
	c.expect(`
__consumer_offsets-0 at 0
__consumer_offsets-1 at 0
a-0 at 0
a-1 at 0
config map[min.insync.replicas:1] map[log.retention.ms:5]`)
	first := c.replicas.Get("a", 0).TopicID()
	c.delete("a")
	c.create("a")
	c.expect(`
__consumer_offsets-0 at 0
__consumer_offsets-1 at 0
a-0 at 0
a-1 at 0
deleted [a]`)
	if id := c.replicas.Get("a", 0).TopicID(); id == first || c.ctrl.Image().Topic("a").ID != id {
		t.Errorf("topic id %x, was %x", id, first)
	}
	c.close()

	// A restart raises the epochs.
	c = newConverging(t, fsys, dir)
	c.expect(`
__consumer_offsets-0 at 2
__consumer_offsets-1 at 2
a-0 at 2
a-1 at 2
config map[min.insync.replicas:1] map[log.retention.ms:5]
load __consumer_offsets-0 at 2
load __consumer_offsets-1 at 2`)
	c.delete("__consumer_offsets", "a")
	c.expect(`
unload __consumer_offsets-0 at 2
unload __consumer_offsets-1 at 2
deleted [__consumer_offsets a]`)
	c.close()
}

// TestStrayReplicasArePutAside: what the metadata does not know is not served after a start, and not destroyed.
func TestStrayReplicasArePutAside(t *testing.T) {
	fsys := vfs.NewMem()
	c := newConverging(t, fsys, t.TempDir())
	c.create("a")
	c.state()
	c.append("a") // replicas without records may have no files yet
	c.close()
	c = newConverging(t, fsys, t.TempDir()) // another cluster's metadata
	c.expect("config map[min.insync.replicas:1] map[]")
	entries, err := fsys.ReadDir("/data")
	if err != nil {
		t.Fatal(err)
	}
	strays := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-stray") {
			strays++
		}
	}
	if strays != 2 {
		t.Errorf("%d stray directories in %v", strays, entries)
	}
	c.close()
}

// append appends a record to both partitions of a topic.
func (c *converging) append(topic string) {
	c.t.Helper()
	for index := range int32(2) {
		if err := c.tryAppend(topic, index); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *converging) tryAppend(topic string, index int32) error {
	_, err := c.replicas.Get(topic, index).Append(partition.AppendRequest{Batch: batch(c.t, 1, 10), Acks: -1, ExpectEpoch: -1, Now: time.Now()})
	return err
}

// TestFullDiskKeepsNobodyWaiting: a replica whose files the disk refuses refuses records itself, as long as there is no room.
func TestFullDiskKeepsNobodyWaiting(t *testing.T) {
	var full atomic.Bool
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if full.Load() && strings.Contains(op.Name, "/a-") {
			return syscall.ENOSPC
		}
		return nil
	})
	c := newConverging(t, fsys, t.TempDir())
	defer c.close()
	full.Store(true)
	c.create("a", "b")
	c.expect(`
a-0 at 0
a-1 at 0
b-0 at 0
b-1 at 0
config map[min.insync.replicas:1] map[]`)
	c.append("b")
	if err := c.tryAppend("a", 0); !errors.Is(err, kerr.KafkaStorageError) {
		t.Error(err)
	}
	full.Store(false)
	c.append("a")
}

// TestRefusedReplicaIsTriedAgain: a replica that can't follow its predecessor yet comes into service by itself when it can.
func TestRefusedReplicaIsTriedAgain(t *testing.T) {
	var full atomic.Bool
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if full.Load() && strings.HasSuffix(op.Name, "checkpoint.tmp") {
			return syscall.ENOSPC
		}
		return nil
	})
	c := newConverging(t, fsys, t.TempDir())
	defer c.close()
	c.create("a")
	c.state()
	c.append("a")
	full.Store(true)
	c.delete("a")
	c.state()
	c.create("a", "b")
	c.expect(`
b-0 at 0
b-1 at 0`)
	full.Store(false)
	waitFor(t, "the replicas", func() bool { return c.replicas.Get("a", 0) != nil && c.replicas.Get("a", 1) != nil })
}
