package partition

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func openDirs(t *testing.T, fsys vfs.FS, paths ...string) (*Dirs, error) {
	t.Helper()
	topic := topicConfig(t, small(t)...)
	d, err := OpenDirs(Options{
		FS: fsys, NodeID: 1, RaftDir: "raft", Config: brokerConfig(t), TopicConfig: func(string) *config.Topic { return topic }, Logger: slog.New(slog.DiscardHandler),
		BrokerEpoch: func() int64 { return 7 }, Registerer: prometheus.NewRegistry(),
	}, paths, start)
	if err == nil {
		t.Cleanup(func() {
			for _, s := range d.sets {
				s.Abandon()
			}
		})
	}
	return d, err
}

func mustOpenDirs(t *testing.T, fsys vfs.FS, paths ...string) *Dirs {
	t.Helper()
	d, err := openDirs(t, fsys, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// leadIn makes a replica in the i-th directory and leads it.
func (d *Dirs) leadIn(t *testing.T, i int, topic string, index int32) *Partition {
	t.Helper()
	p, err := d.Create(d.IDs()[i], topic, protocol.UUID{1}, index, topicConfig(t, small(t)...), start)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSeveralDirectories: they belong to one cluster, each replica is in the directory that it was made in, and found wherever it is.
func TestSeveralDirectories(t *testing.T) {
	disk := vfs.NewMem()
	d := mustOpenDirs(t, disk, "/a", "/b", "/c")
	ids := d.IDs()
	if len(ids) != 3 || ids[0] == ids[1] || ids[1] == ids[2] || d.ClusterID() == "" {
		t.Fatalf("ids %v", ids)
	}
	for _, s := range d.sets {
		if s.ClusterID() != d.ClusterID() {
			t.Errorf("%s belongs to %s", s.dir, s.ClusterID())
		}
	}
	for i, want := range []int{1, 0, 2} {
		p := d.leadIn(t, want, "t", int32(i))
		mustProduce(t, p, spec{value: fmt.Sprint(i)})
		if d.DirectoryOf(p) != ids[want] || d.Get("t", int32(i)) != p || d.GetByID([16]byte{1}, int32(i)) != p {
			t.Errorf("replica %d is lost", i)
		}
	}
	mustProduce(t, d.leadIn(t, 1, "t", 3), spec{})
	// Where nobody says which it goes to one with the fewest.
	p, err := d.Create([16]byte{}, "u", protocol.UUID{2}, 0, topicConfig(t), start)
	if err != nil || d.DirectoryOf(p) != ids[0] {
		t.Errorf("%v, %v", protocol.UUID(d.DirectoryOf(p)), err)
	}
	_, err = d.Create([16]byte{9}, "u", protocol.UUID{2}, 1, topicConfig(t), start)
	wantCode(t, err, kerr.KafkaStorageError)
	// A namesake of another topic is put aside wherever it is.
	q, err := d.Create(ids[2], "t", protocol.UUID{3}, 1, topicConfig(t), start)
	if err != nil || d.Get("t", 1) != q {
		t.Errorf("%v", err)
	}
	if got := names(t, disk, "/a"); !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, straySuffix) }) {
		t.Errorf("/a has %v", got)
	}
	if err := d.Delete("t", 3); err != nil || d.Get("t", 3) != nil {
		t.Errorf("deleted: %v", err)
	}
	if n := len(slices.Collect(d.All())); n != 4 {
		t.Errorf("%d replicas", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpenDirs(t, disk, "/a", "/b", "/c")
	if !slices.Equal(again.IDs(), ids) || again.Get("t", 0) == nil || again.DirectoryOf(again.Get("t", 0)) != ids[1] || again.Get("t", 0).Offsets().End != 1 {
		t.Error("the replicas are not where they were")
	}
}

// TestADirectoryThatCannotBeUsed leaves the others alone, at the start.
func TestADirectoryThatCannotBeUsed(t *testing.T) {
	disk := vfs.NewMem()
	d := mustOpenDirs(t, disk, "/a", "/b")
	ids := d.IDs()
	mustProduce(t, d.leadIn(t, 0, "t", 0), spec{})
	mustProduce(t, d.leadIn(t, 1, "t", 1), spec{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	broken := vfs.Inject(disk, func(op vfs.Op) error {
		if strings.HasPrefix(op.Name, "/b") {
			return syscall.EIO
		}
		return nil
	})
	d = mustOpenDirs(t, broken, "/a", "/b")
	if !slices.Equal(d.IDs(), ids[:1]) || d.Get("t", 0) == nil || d.Get("t", 1) != nil {
		t.Errorf("ids %v", d.IDs())
	}
	dirs := d.Directories()
	if dirs[0].Err != nil || dirs[0].ID != ids[0] || !errors.Is(dirs[1].Err, syscall.EIO) || dirs[1].ID != [16]byte{} || dirs[1].Path != "/b" {
		t.Errorf("%+v", dirs)
	}
	_, err := d.Create(ids[1], "t", protocol.UUID{1}, 1, topicConfig(t), start)
	wantCode(t, err, kerr.KafkaStorageError)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d = mustOpenDirs(t, disk, "/a", "/b"); d.Get("t", 1).Offsets().End != 1 {
		t.Error("what the directory had is lost")
	}
	d.sets[0].Abandon()
	d.sets[1].Abandon()
	if _, err := openDirs(t, vfs.Inject(disk, func(vfs.Op) error { return syscall.EIO }), "/a", "/b"); !errors.Is(err, syscall.EIO) {
		t.Errorf("with no directory left: %v", err)
	}
}

// TestADirectoryThatFails takes its replicas offline, those that had no error of their own too; the others go on. One error in a sound directory
// does not.
func TestADirectoryThatFails(t *testing.T) {
	var mode atomic.Int32 // 1: /b/t-1 fails, 2: all of /b fails
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if m := mode.Load(); m == 1 && strings.HasPrefix(op.Name, "/b/t-1/") || m == 2 && strings.HasPrefix(op.Name, "/b") {
			return syscall.EIO
		}
		return nil
	})
	d := mustOpenDirs(t, fsys, "/a", "/b")
	told := make(chan struct{}, 1)
	d.failed = func([][16]byte) { told <- struct{}{} }
	ids := d.IDs()
	var ps []*Partition
	for i, dir := range []int{0, 1, 1, 1} {
		p := d.leadIn(t, dir, "t", int32(i))
		mustProduce(t, p, spec{})
		ps = append(ps, p)
	}
	mode.Store(1)
	_, err := produce(t, ps[1], spec{})
	wantCode(t, err, kerr.KafkaStorageError)
	d.probes.Wait()
	if mustProduce(t, ps[2], spec{}); !slices.Equal(d.IDs(), ids) {
		t.Error("the directory was given up for one partition")
	}
	mode.Store(2)
	_, err = produce(t, ps[2], spec{})
	wantCode(t, err, kerr.KafkaStorageError)
	<-told
	_, err = produce(t, ps[3], spec{})
	wantCode(t, err, kerr.KafkaStorageError)
	mustProduce(t, ps[0], spec{})
	if !slices.Equal(d.IDs(), ids[:1]) || !errors.Is(d.Directories()[1].Err, syscall.EIO) {
		t.Errorf("%+v", d.Directories())
	}
	_, err = d.Move(t.Context(), ps[0], ids[1], start)
	wantCode(t, err, kerr.KafkaStorageError)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	mode.Store(0)
	again := mustOpenDirs(t, fsys, "/a", "/b")
	for i, want := range []int64{2, 1, 2, 1} {
		if got := again.Get("t", int32(i)).Offsets().End; got != want {
			t.Errorf("partition %d ends at %d, want %d", i, got, want)
		}
	}
}

// TestTheOnlyDirectoryFails: one partition's error does not take it out of use, a checkpoint's in a sound directory neither; when it has failed as a whole
// nothing is left, and that is told.
func TestTheOnlyDirectoryFails(t *testing.T) {
	var disk switched
	d := mustOpenDirs(t, vfs.Inject(vfs.NewMem(), disk.ask), "/a")
	told := make(chan int, 1)
	d.failed = func(left [][16]byte) { told <- len(left) }
	var ps []*Partition
	for i := range int32(3) {
		ps = append(ps, d.leadIn(t, 0, "t", i))
		mustProduce(t, ps[i], spec{})
	}
	disk.set(func(op vfs.Op) error {
		if strings.HasPrefix(op.Name, "/a/t-1/") || strings.HasPrefix(op.Name, "/a/recovery-point") {
			return syscall.EIO
		}
		return nil
	})
	_, err := produce(t, ps[1], spec{})
	wantCode(t, err, kerr.KafkaStorageError)
	d.sets[0].logged(d.sets[0].checkpointPoints)()
	d.probes.Wait()
	mustProduce(t, ps[2], spec{})
	disk.set(func(vfs.Op) error { return syscall.EIO })
	d.sets[0].logged(d.sets[0].checkpointPoints)()
	if left := <-told; left != 0 || len(d.IDs()) != 0 {
		t.Errorf("%d directories are left", left)
	}
	for _, p := range ps {
		wantCode(t, p.Err(), kerr.KafkaStorageError)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestDirectoriesThatStopTheStart: an operator has to put them right.
func TestDirectoriesThatStopTheStart(t *testing.T) {
	for what, prepare := range map[string]func(*vfs.Mem){
		"another node": func(m *vfs.Mem) { writeProperties(t, m, "/b", properties{"c", 2, protocol.UUID{200}}) },
		"another cluster": func(m *vfs.Mem) {
			writeProperties(t, m, "/a", properties{"x", 1, protocol.UUID{201}})
			writeProperties(t, m, "/b", properties{"c", 1, protocol.UUID{200}})
		},
		"the same id": func(m *vfs.Mem) {
			writeProperties(t, m, "/a", properties{"c", 1, protocol.UUID{200}})
			writeProperties(t, m, "/b", properties{"c", 1, protocol.UUID{200}})
		},
		"a stranger": func(m *vfs.Mem) { _ = m.MkdirAll("/b/holiday", 0o755) },
	} {
		disk := vfs.NewMem()
		prepare(disk)
		if d, err := openDirs(t, disk, "/a", "/b"); err == nil {
			t.Errorf("%s: opened %v", what, d.IDs())
		}
		if _, err := disk.Lock("/a/.lock"); err != nil {
			t.Errorf("%s: /a is still in use", what)
		}
	}
}

func writeProperties(t *testing.T, fsys vfs.FS, dir string, p properties) {
	t.Helper()
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(fsys, dir+"/"+metaPropertiesFile, p.format()); err != nil {
		t.Fatal(err)
	}
}
