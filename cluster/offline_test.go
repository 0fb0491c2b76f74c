package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestReadImage: what a stopped controller leaves is read as the controller knew it, with and without a snapshot, and nothing is changed by that.
func TestReadImage(t *testing.T) {
	dir := t.TempDir()
	if has, err := HasMetadata(dir); has || err != nil {
		t.Fatal(has, err)
	}
	if _, err := ReadImage(dir); err == nil {
		t.Fatal("an image of nothing")
	}
	c, err := Open(Options{NodeID: 1, Dir: dir, Config: testConfig(t), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(context.Background(), Registration{BrokerID: 1, ClusterID: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		adopt(t, c, Adoption{NextProducerID: 7, Topics: []AdoptedTopic{{
			Name: name, ID: [16]byte{15: name[0]}, Configs: map[string]string{"retention.ms": "-1"}, Partitions: []AdoptedPartition{{LeaderEpoch: 3}, {LeaderEpoch: 5}},
		}}})
		if name == "a" {
			if err := c.voter.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := ReadImage(dir); err == nil {
		t.Error("read while the controller runs")
	}
	want := describe(c.Image())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	im, err := ReadImage(dir)
	if err != nil {
		t.Fatal(err)
	}
	if im.ControllerID = 1; describe(im) != want {
		t.Errorf("image\n%s\nwant\n%s", describe(im), want)
	}
	if after := tree(t, dir); after != before {
		t.Errorf("files were\n%s\nand are\n%s", before, after)
	}
	snapshots, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if len(snapshots) != 1 {
		t.Fatal(snapshots)
	}
	if err := os.WriteFile(snapshots[0], []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadImage(dir); !errors.Is(err, errCorrupt) {
		t.Error(err)
	}
}

func adopt(t *testing.T, c *Controller, a Adoption) {
	t.Helper()
	if err := c.Adopt(context.Background(), a); err != nil {
		t.Fatal(err)
	}
}

// tree shows the files below a directory with their sizes.
func tree(t *testing.T, dir string) (text string) {
	t.Helper()
	err := filepath.Walk(dir, func(name string, st os.FileInfo, err error) error {
		if err == nil && !st.IsDir() {
			text += name + " " + st.ModTime().String() + "\n"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestAdopt: topics come with their ids, configs and epochs, and only if all of them can.
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	open := func() *Controller {
		c, err := Open(Options{NodeID: 1, Dir: dir, Config: testConfig(t), Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	wanted := []AdoptedPartition{{4, [16]byte{7}}, {0, [16]byte{7}}, {9, [16]byte{8}}}
	c := open()
	adopt(t, c, Adoption{ClusterID: "theirs", NextProducerID: 2000, Topics: []AdoptedTopic{
		{Name: "x.y", ID: [16]byte{1}, Configs: map[string]string{"cleanup.policy": "compact"}, Partitions: wanted},
	}})
	for name, tt := range map[string]struct {
		topic AdoptedTopic
		want  error
	}{
		"its name is there":  {AdoptedTopic{Name: "x.y", ID: [16]byte{2}, Partitions: make([]AdoptedPartition, 1)}, kerr.TopicAlreadyExists},
		"its id is there":    {AdoptedTopic{Name: "z", ID: [16]byte{1}, Partitions: make([]AdoptedPartition, 1)}, kerr.TopicAlreadyExists},
		"a name like it":     {AdoptedTopic{Name: "x_y", ID: [16]byte{2}, Partitions: make([]AdoptedPartition, 1)}, kerr.InvalidTopicException},
		"no name of a topic": {AdoptedTopic{Name: "x/y", ID: [16]byte{2}, Partitions: make([]AdoptedPartition, 1)}, kerr.InvalidTopicException},
		"a bad config":       {AdoptedTopic{Name: "z", ID: [16]byte{2}, Configs: map[string]string{"retention.ms": "x"}}, kerr.InvalidConfig},
	} {
		before := describe(c.Image())
		good := AdoptedTopic{Name: "good", ID: [16]byte{3}, Partitions: make([]AdoptedPartition, 1)}
		if err := c.Adopt(context.Background(), Adoption{Topics: []AdoptedTopic{good, tt.topic}}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if after := describe(c.Image()); after != before {
			t.Errorf("%s: image\n%s\nwas\n%s", name, after, before)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open()
	defer c.Close()
	if _, err := c.Register(context.Background(), Registration{BrokerID: 1, ClusterID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	im := c.Image()
	topic := im.Topic("x.y")
	if im.ClusterID != "theirs" || topic == nil || topic.ID != [16]byte{1} || len(topic.Partitions) != 3 {
		t.Fatal(describe(im))
	}
	for i, want := range wanted {
		if p := topic.Partitions[i]; p.LeaderEpoch < want.LeaderEpoch || p.Leader != 1 || p.Directories[0] != want.Directory {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	if got := im.Config(kmsg.ConfigResourceTypeTopic, "x.y"); got["cleanup.policy"] != "compact" {
		t.Error(got)
	}
	first, _, err := c.AllocateProducerIDs(context.Background(), 1, im.Broker(1).Epoch)
	if err != nil || first != 2000 {
		t.Error(first, err)
	}
}
