package partition

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"oncelog/idempotence"
	"oncelog/internal/vfs"
)

// goldenDir holds directories that Kafka 4.4 wrote.
const goldenDir = "../tests/golden/testdata"

// expected is what Kafka said of the partitions in goldenDir.
type expected struct {
	Partitions []struct {
		Topic               string
		Partition           int32
		TopicID             string
		LogStartOffset      int64
		HighWatermark       int64
		LastStableOffset    int64
		LeaderEpoch         int32
		LogEndOffset        int64
		AbortedTransactions []AbortedTxn
		Producers           []struct {
			ProducerID            int64
			ProducerEpoch         int16
			LastSequence          int32
			LastTimestamp         int64
			CoordinatorEpoch      int32
			CurrentTxnStartOffset int64
		}
		LeaderEpochs []struct {
			Epoch       int32
			StartOffset int64
		}
		Segments []struct {
			Base     int64
			TxnIndex []struct{ ProducerID, FirstOffset, LastOffset, LastStableOffset int64 }
		}
	}
}

func golden(t *testing.T, set string) (expected, *vfs.Mem) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, set, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	var e expected
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	copyDir(t, filepath.Join(goldenDir, set, "data"), m, "/data")
	return e, m
}

// TestKafkasDirectories opens what Kafka wrote, and finds what Kafka said of it: after a clean stop, after a kill, and after
// Kafka's own recovery from that.
func TestKafkasDirectories(t *testing.T) {
	for _, set := range []string{"txn", "epochs", "appendtime", "killed", "killed-recovered"} {
		t.Run(set, func(t *testing.T) {
			e, m := golden(t, set)
			n := open(t, m, topicConfig(t, "retention.ms", "-1"))
			for _, want := range e.Partitions {
				p := n.Get(want.Topic, want.Partition)
				if p == nil || p.id.String() != want.TopicID || n.GetByID(p.id, want.Partition) != p {
					t.Fatalf("%s-%d is not there: %s", want.Topic, want.Partition, n.logs)
				}
				if err := p.Lead(want.LeaderEpoch, []int32{1}, []int32{1}); err != nil {
					t.Fatal(err)
				}
				o := Offsets{want.LogStartOffset, want.LastStableOffset, want.HighWatermark, want.LogEndOffset, want.LeaderEpoch}
				if got := p.Offsets(); got != o {
					t.Errorf("offsets %+v, want %+v", got, o)
				}
				if got := abortedFrom(t, p, 0); !reflect.DeepEqual(got, want.AbortedTransactions) && len(got)+len(want.AbortedTransactions) > 0 {
					t.Errorf("aborted %v, want %v", got, want.AbortedTransactions)
				}
				checkProducers(t, p, set, want.Producers)
				for _, epoch := range want.LeaderEpochs {
					if got := p.epochs.Load().at(epoch.StartOffset); got != epoch.Epoch {
						t.Errorf("epoch at %d is %d, want %d", epoch.StartOffset, got, epoch.Epoch)
					}
				}
				for _, s := range want.Segments {
					checkTxnIndex(t, p, s.Base, s.TxnIndex)
				}
			}
		})
	}
}

// abortedFrom gives what read_committed fetches tell from an offset to the last stable one.
func abortedFrom(t *testing.T, p *Partition, from int64) (all []AbortedTxn) {
	t.Helper()
	for bound := p.Offsets().LSO; from < bound; {
		batches, res, err := read(t, p, ReadRequest{Offset: from, Isolation: ReadCommitted, CurrentLeaderEpoch: -1})
		if err != nil || len(batches) == 0 {
			t.Fatal(from, err)
		}
		for _, a := range res.Aborted {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
		from = batches[len(batches)-1].Header().LastOffset() + 1
	}
	return all
}

func checkProducers(t *testing.T, p *Partition, set string, want []struct {
	ProducerID            int64
	ProducerEpoch         int16
	LastSequence          int32
	LastTimestamp         int64
	CoordinatorEpoch      int32
	CurrentTxnStartOffset int64
}) {
	t.Helper()
	got, err := p.Producers()
	if err != nil {
		t.Fatal(err)
	}
	byID := map[int64]ProducerState{}
	for _, s := range got {
		byID[s.ProducerID] = s
	}
	for _, w := range want {
		s := ProducerState{w.ProducerID, w.ProducerEpoch, w.LastSequence, w.LastTimestamp, w.CoordinatorEpoch, w.CurrentTxnStartOffset}
		if byID[w.ProducerID] != s {
			t.Errorf("producer %+v, want %+v", byID[w.ProducerID], s)
		}
	}
	// Kafka forgot a producer when it recovered, by its records' timestamps; its snapshot still has it, and so have we.
	if len(got) != len(want) && set != "killed-recovered" {
		t.Errorf("%d producers, want %d", len(got), len(want))
	}
}

func checkTxnIndex(t *testing.T, p *Partition, base int64, want []struct{ ProducerID, FirstOffset, LastOffset, LastStableOffset int64 }) {
	t.Helper()
	got, err := p.txns.load(base)
	if err != nil && !isNotExist(err) {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("segment %d: %v, want %v", base, got, want)
	}
	for i, a := range got {
		if a.ProducerID != want[i].ProducerID || a.First != want[i].FirstOffset || a.Last != want[i].LastOffset || a.LastStable != want[i].LastStableOffset {
			t.Errorf("segment %d: %+v, want %+v", base, a, want[i])
		}
	}
}

// TestRecoveryWritesKafkasFiles: after a kill Kafka rebuilt its files, and so do we, to the same bytes.
func TestRecoveryWritesKafkasFiles(t *testing.T) {
	_, m := golden(t, "killed")
	n := open(t, m, topicConfig(t, "retention.ms", "-1"))
	p := n.Get("killed", 0)
	_ = p.Offsets()
	recovered := filepath.Join(goldenDir, "killed-recovered/data/killed-0")
	files, err := os.ReadDir(recovered)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		ext := filepath.Ext(f.Name())
		if ext != ".txnindex" && ext != ".snapshot" {
			continue
		}
		want, err := os.ReadFile(filepath.Join(recovered, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := vfs.ReadFile(m, filepath.Join(p.dir, f.Name()), 1<<20)
		if err != nil {
			t.Error(err)
			continue
		}
		if ext == ".txnindex" && string(got) != string(want) {
			t.Errorf("%s: %x, want %x", f.Name(), got, want)
		}
		if ext == ".snapshot" {
			compareSnapshots(t, f.Name(), got, want)
		}
	}
}

func compareSnapshots(t *testing.T, name string, got, want []byte) {
	t.Helper()
	sorted := func(data []byte) string {
		entries, err := idempotence.ParseSnapshot(data)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(entries, func(a, b idempotence.Entry) int { return int(a.ProducerID - b.ProducerID) })
		return fmt.Sprintf("%+v", entries)
	}
	if g, w := sorted(got), sorted(want); g != w {
		t.Errorf("%s: %s, want %s", name, g, w)
	}
}

// TestKafkasDirectoryStaysKafkas: opened by us, led, and closed, a directory has Kafka's files with Kafka's bytes where nothing was
// appended.
func TestKafkasDirectoryStaysKafkas(t *testing.T) {
	_, m := golden(t, "txn")
	before := tree(t, m, "/data/txn-0")
	n := open(t, m, topicConfig(t, "retention.ms", "-1"))
	p := n.Get("txn", 0)
	if err := p.Lead(2, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	_ = p.Offsets()
	n.close()
	after := tree(t, m, "/data/txn-0")
	if !reflect.DeepEqual(after, before) {
		for name, data := range before {
			if after[name] != data {
				t.Errorf("%s changed", name)
			}
		}
		for name := range after {
			if _, ok := before[name]; !ok {
				t.Errorf("%s is new", name)
			}
		}
	}
	if got := string(readFile(t, m, "/data/.kafka_cleanshutdown")); got != `{"version":0,"brokerEpoch":7}` {
		t.Errorf("marker %q", got)
	}
	if n.PreviousBrokerEpoch() != 15 {
		t.Errorf("previous broker epoch %d", n.PreviousBrokerEpoch())
	}
}

func tree(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	list, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range list {
		files[f.Name()] = string(readFile(t, fsys, filepath.Join(dir, f.Name())))
	}
	return files
}
