package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func names(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	list, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range list {
		all = append(all, d.Name())
	}
	return all
}

func TestNewDirectory(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	p := n.lead()
	if n.ClusterID() == "" || n.DirectoryID() == [16]byte{} || n.PreviousBrokerEpoch() != -1 {
		t.Error("no ids")
	}
	if p.Topic() != "t" || p.Index() != 0 || p.TopicID() != [16]byte{1} || n.Get("t", 1) != nil || n.GetByID([16]byte{1}, 0) != p {
		t.Error("wrong partition")
	}
	// Nothing is written for an epoch before its first sync.
	p.make()
	if slices.Contains(names(t, disk, "/data/t-0"), leaderEpochFile) {
		t.Error("leader epochs were written")
	}
	mustProduce(t, p, spec{})
	mustProduce(t, p, spec{n: 2})
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := string(readFile(t, disk, "/data/t-0/leader-epoch-checkpoint")); got != "0\n1\n0 0\n" {
		t.Errorf("%q", got)
	}
	id := n.ClusterID()
	n.close()
	want := []string{"00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex", leaderEpochFile, partitionMetadataFile}
	if got := names(t, disk, "/data/t-0"); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if got := string(readFile(t, disk, "/data/replication-offset-checkpoint")); got != "0\n1\nt 0 3\n" {
		t.Errorf("%q", got)
	}
	if got := string(readFile(t, disk, "/data/recovery-point-offset-checkpoint")); got != "0\n1\nt 0 3\n" {
		t.Errorf("%q", got)
	}
	again := open(t, disk, topicConfig(t))
	if again.ClusterID() != id || again.PreviousBrokerEpoch() != 7 || slices.Contains(names(t, disk, "/data"), cleanShutdownFile) {
		t.Error("the stop was clean, and its marker is gone now")
	}
	if o := again.Get("t", 0).Offsets(); o != (Offsets{0, 3, 3, 3, -1}) {
		t.Errorf("%+v", o)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	if _, err := tryOpen(t, disk, "/data", n.topic); err == nil || !strings.Contains(err.Error(), "log directory /data is in use") {
		t.Fatal(err)
	}
	n.close()
	open(t, disk, n.topic)
}

// TestForeignDirectoryStopsTheStart, and leaves the marker of the clean stop where it is.
func TestForeignDirectoryStopsTheStart(t *testing.T) {
	for name, refused := range map[string]bool{
		"junk": true, "x-y-z": true, "lost+found": false, ".hidden": false, "raft": false, "__cluster_metadata-0": false,
		"gone-0.0123456789abcdef0123456789abcdef-stray": false,
	} {
		disk := vfs.NewMem()
		n := open(t, disk, topicConfig(t))
		mustProduce(t, n.lead(), spec{})
		n.close()
		if err := disk.MkdirAll(filepath.Join("/data", name), 0o755); err != nil {
			t.Fatal(err)
		}
		overwrite(t, disk, "/data/junk.txt", []byte("x"))
		again, err := tryOpen(t, disk, "/data", n.topic)
		if !refused {
			if err != nil || again.Get("t", 0).Offsets().End != 1 || len(slices.Collect(again.All())) != 1 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), name) || !slices.Contains(names(t, disk, "/data"), cleanShutdownFile) {
			t.Errorf("%s: %v", name, err)
		}
		if err := disk.RemoveAll(filepath.Join("/data", name)); err != nil {
			t.Fatal(err)
		}
		if open(t, disk, n.topic).PreviousBrokerEpoch() != 7 {
			t.Errorf("%s: the start after it isn't clean", name)
		}
	}
}

func TestDeleteAndStray(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	res, err := p.Read(ReadRequest{MaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Slice.Release()
	if err := errors.Join(n.Delete("t", 0), n.Delete("t", 0)); err != nil {
		t.Fatal(err)
	}
	if n.Get("t", 0) != nil || n.GetByID([16]byte{1}, 0) != nil {
		t.Error("still there")
	}
	_, err = p.Append(spec{}.request(t))
	wantCode(t, err, kerr.UnknownTopicOrPartition)
	if got := make([]byte, res.Slice.Len); true {
		if _, err := res.Slice.ReadAt(got, 0); err != nil {
			t.Error("what was being read has gone", err)
		}
	}
	// A topic of the same name begins anew, whatever its directory was.
	p = n.lead()
	if p.Offsets().End != 0 {
		t.Error("old records in a new topic")
	}
	mustProduce(t, p, spec{})
	q, err := n.Create("t", protocol.UUID{2}, 0, n.topic, start)
	if err != nil || q == p || q.Offsets().End != 0 {
		t.Fatal(err)
	}
	if same, err := n.Create("t", protocol.UUID{2}, 0, n.topic, start); err != nil || same != q {
		t.Error("made twice", err)
	}
	q.make()
	if err := n.Stray("t", 0); err != nil {
		t.Fatal(err)
	}
	n.close()
	deleted, strays := 0, 0
	for _, name := range names(t, disk, "/data") {
		switch _, _, suffix, _ := parseDirName(name); suffix {
		case deleteSuffix:
			deleted++
		case straySuffix:
			strays++
		}
	}
	if deleted != 1 || strays != 2 {
		t.Errorf("%d deleted, %d strays: %v", deleted, strays, names(t, disk, "/data"))
	}
}

// TestDirectoryWithoutMetadata: without records it is what a power failure left. With records it is offline, until somebody who knows says which topic
// it belongs to, or that it belongs to none.
func TestDirectoryWithoutMetadata(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	mustProduce(t, n.lead(), spec{})
	e, err := n.Create("e", protocol.UUID{3}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	e.make()
	n.close()
	overwrite(t, disk, "/data/e-0/partition.metadata", nil)
	if err := disk.Remove("/data/t-0/partition.metadata"); err != nil {
		t.Fatal(err)
	}
	n = open(t, disk, n.topic)
	nameless := n.Get("t", 0)
	if left := names(t, disk, "/data"); len(slices.Collect(n.All())) != 1 || slices.Contains(left, "e-0") || !slices.Contains(left, "t-0") {
		t.Errorf("%v", left)
	}
	if err := nameless.Err(); !errors.Is(err, kerr.KafkaStorageError) || !strings.Contains(n.logs.String(), "/data/t-0/partition.metadata") {
		t.Errorf("%v: %s", err, n.logs)
	}
	p, err := n.Create("t", protocol.UUID{1}, 0, n.topic, start)
	if err != nil || p.Err() != nil || p.log.End() != 1 || n.GetByID(protocol.UUID{1}, 0) != p || n.Get("t", 0) != p {
		t.Fatal(p.Err(), err)
	}
	n.close()
	if n = open(t, disk, n.topic); n.GetByID(protocol.UUID{1}, 0) == nil {
		t.Error("the id was not written down")
	}
	n.close()
	overwrite(t, disk, "/data/t-0/partition.metadata", []byte("nonsense"))
	n = open(t, disk, n.topic)
	if err := n.Stray("t", 0); err != nil {
		t.Fatal(err)
	}
	left := names(t, disk, "/data")
	if n.Get("t", 0) != nil || !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "t-0.") && strings.HasSuffix(s, "-stray") }) {
		t.Errorf("%v", left)
	}
}

// TestOldFormatIsOffline: a partition that can't be opened is offline with one line, keeps its checkpoints, and harms no other.
func TestOldFormatIsOffline(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	mustProduce(t, n.lead(), spec{})
	good, err := n.Create("good", protocol.UUID{4}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	good.make() // else a stop may come before it
	n.close()
	old := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(old[12:], crc32.ChecksumIEEE(old[16:]))
	overwrite(t, disk, "/data/t-0/00000000000000000000.log", old)
	n = open(t, disk, n.topic)
	p := n.Get("t", 0)
	wantCode(t, p.Lead(1, []int32{1}, []int32{1}), kerr.KafkaStorageError)
	_, err = p.Append(spec{}.request(t))
	wantCode(t, err, kerr.KafkaStorageError)
	_, _, err = read(t, p, ReadRequest{})
	wantCode(t, err, kerr.KafkaStorageError)
	for range p.Batches(0) {
	}
	_ = p.Offsets()
	n.SetConfig("t", n.topic)
	if got := strings.Count(n.logs.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d lines: %s", got, n.logs)
	}
	if err := n.Get("good", 0).Err(); err != nil {
		t.Error(err)
	}
	n.close()
	if got := string(readFile(t, disk, "/data/replication-offset-checkpoint")); !strings.Contains(got, "t 0 1\n") {
		t.Errorf("%q", got)
	}
	if slices.Contains(names(t, disk, "/data"), cleanShutdownFile) {
		t.Error("the stop counts as clean")
	}
}

func TestRetention(t *testing.T) {
	// batches of 78 bytes, three to a segment, so the bases are 0, 3, 6 and 9; the last segment has one.
	for _, tt := range []struct {
		name  string
		topic []string
		old   int // batches with an old timestamp
		start int64
	}{
		{"nothing", []string{"retention.ms", "-1"}, 10, 0},
		{"size", []string{"retention.ms", "-1", "retention.bytes", "390"}, 0, 3},
		{"size, to the byte", []string{"retention.ms", "-1", "retention.bytes", "312"}, 0, 6},
		{"time", []string{"retention.ms", "1000"}, 7, 6},
		{"all of it", []string{"retention.ms", "1000"}, 10, 10},
		{"compacted", []string{"retention.ms", "1000", "cleanup.policy", "compact"}, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := vfs.NewMem()
			settings := append(tt.topic, "internal.segment.bytes", "250")
			n := open(t, disk, topicConfig(t, settings...))
			p := n.lead()
			for i := range 10 {
				ts, value := start.UnixMilli(), "1234567"
				if i < tt.old {
					ts, value = ts-5000, "123456" // which has a longer delta
				}
				a := mustProduce(t, p, spec{pid: 3, seq: int32(i), times: []int64{ts}, value: value})
				if i == 0 && len(stored(t, p, a.BaseOffset)) != 78 {
					t.Fatal(len(stored(t, p, 0)))
				}
			}
			if err := p.retain(start); err != nil {
				t.Fatal(err)
			}
			if o := p.Offsets(); o.Start != tt.start || o.End != 10 {
				t.Errorf("%+v, want start %d", o, tt.start)
			}
			if got := p.epochs.Load().at(tt.start); got != 0 {
				t.Errorf("epoch at the start: %d", got)
			}
			for _, name := range names(t, disk, p.dir) {
				if offset, ext := int64(0), filepath.Ext(name); ext == extSnapshot || ext == extWindow {
					if _, err := fmt.Sscanf(name, "%d", &offset); err != nil || offset < tt.start {
						t.Errorf("%s is left: %v", name, err)
					}
				}
			}
			// The sequences outlive the records, over a restart too.
			for range 2 {
				if a := mustProduce(t, p, spec{pid: 3, seq: 9, value: "12345"}); !a.Duplicate || a.BaseOffset != 9 {
					t.Errorf("%+v", a)
				}
				n.close()
				n = open(t, disk, n.topic)
				p = n.lead()
			}
		})
	}
}

// TestStateIsLoadedWhenNeeded: after a clean stop a partition that nobody uses costs no read of its snapshot, and a second
// clean stop none either.
func TestStateIsLoadedWhenNeeded(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	mustProduce(t, n.lead(), spec{pid: 5})
	n.close()
	var mu sync.Mutex
	var read []string
	fsys := vfs.Inject(disk, func(op vfs.Op) error {
		if strings.HasSuffix(op.Name, extSnapshot) || strings.HasSuffix(op.Name, extWindow) {
			mu.Lock()
			defer mu.Unlock()
			read = append(read, op.Name)
		}
		return nil
	})
	for range 2 {
		n = open(t, fsys, n.topic)
		p := n.Get("t", 0)
		if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
			t.Fatal(err)
		}
		n.close()
	}
	if len(read) > 0 {
		t.Errorf("%v", read)
	}
	n = open(t, fsys, n.topic)
	if a := mustProduce(t, n.lead(), spec{pid: 5}); !a.Duplicate {
		t.Errorf("%+v", a)
	}
}

// TestHousekeeping: what is due later happens when it is due, and nothing happens in between.
func TestHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		n := &node{t: t, topic: topicConfig(t, "retention.ms", "1000", "file.delete.delay.ms", "5000", "flush.ms", "700")}
		var err error
		n.Set, err = OpenSet(Options{FS: disk, Dir: "/data", NodeID: 1, Config: brokerConfig(t, "producer.id.expiration.ms=1000000"),
			TopicConfig: func(string) *config.Topic { return n.topic }}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer n.Abandon()
		n.now = time.Now()
		p := n.lead()
		a, err := p.Append(AppendRequest{Batch: spec{pid: 3, n: 2, times: []int64{time.Now().UnixMilli(), time.Now().UnixMilli()}}.build(t), ExpectEpoch: -1, Now: time.Now()})
		if err != nil {
			t.Fatal(a, err)
		}
		exists := func(name string) bool {
			_, err := disk.Stat(name)
			return err == nil
		}
		time.Sleep(699 * time.Millisecond)
		synctest.Wait()
		if p.log.Durable() != 0 {
			t.Error("synced before flush.ms")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if p.log.Durable() != 2 || exists("/data/replication-offset-checkpoint") {
			t.Error("flush.ms", p.log.Durable())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !exists("/data/replication-offset-checkpoint") || exists("/data/recovery-point-offset-checkpoint") {
			t.Error("checkpoint of the high watermark")
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if p.Offsets().Start != 2 || !exists("/data/t-0/00000000000000000000.log.deleted") {
			t.Error("first retention after 30 s", p.Offsets())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if exists("/data/t-0/00000000000000000000.log.deleted") {
			t.Error("removed segment is left")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if !exists("/data/recovery-point-offset-checkpoint") {
			t.Error("checkpoint of the recovery points")
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if list, err := p.Producers(); err != nil || len(list) != 0 {
			t.Error("producers expire", list, err)
		}
		if err := n.Delete("t", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		for _, name := range names(t, disk, "/data") {
			if strings.HasSuffix(name, deleteSuffix) {
				t.Error("deleted partition is left")
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	n := &node{t: t, topic: topicConfig(t), now: start}
	var err error
	n.Set, err = OpenSet(Options{FS: vfs.NewMem(), Dir: "/data", NodeID: 1, Config: brokerConfig(t), Registerer: registry}, start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Abandon)
	p := n.lead()
	mustProduce(t, p, spec{n: 3})
	mustProduce(t, p, spec{pid: 4, txn: true, n: 2})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[strings.TrimPrefix(f.GetName(), "oncelog_partition_")] = f.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{"end_offset": 5, "high_watermark": 5, "last_stable_offset": 3, "last_stable_offset_lag": 2,
		"open_transactions": 1, "offline": 0, "start_offset": 0, "size_bytes": float64(p.Size())} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if count, age := p.OpenTransactions(start.Add(time.Minute)); count != 1 || age != time.Minute {
		t.Error(count, age)
	}
}

// TestConcurrentUse has everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, small(t)...))
	p := n.lead()
	var running sync.WaitGroup
	stop := make(chan struct{})
	for id := range int64(3) {
		running.Go(func() {
			for i := range int32(60) {
				mustProduce(t, p, spec{pid: id + 1, seq: i, txn: id > 0})
				if id > 0 && i%4 == 3 {
					endTxn(t, p, id+1, 0, i%8 == 3)
				}
			}
		})
	}
	var readers sync.WaitGroup
	for _, isolation := range []Isolation{ReadUncommitted, ReadCommitted} {
		readers.Go(func() {
			for from := int64(0); ; {
				batches, res, err := read(t, p, ReadRequest{Offset: from, CurrentLeaderEpoch: -1, Isolation: isolation})
				if isCode(err, kerr.OffsetOutOfRange) {
					from = p.Offsets().Start
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if o := p.Offsets(); res.LSO > res.HW || o.Start > o.HW || o.HW > o.End {
					t.Errorf("%+v %+v", res, o)
				}
				if len(batches) > 0 {
					from = batches[len(batches)-1].Header().LastOffset() + 1
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	readers.Go(func() {
		for {
			_, _ = p.DeleteRecords(p.Offsets().Start)
			if err := errors.Join(p.Sync(), p.retain(start), n.checkpointPoints(), n.checkpointHighWatermarks()); err != nil {
				t.Error(err)
			}
			n.SetConfig("t", n.topic)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	running.Wait()
	close(stop)
	readers.Wait()
	n.close()
}
