package inspect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/partition"
)

// importing is an import into /data from directories of Kafka's, all of them in memory but for the metadata.
type importing struct {
	t    *testing.T
	fsys vfs.FS
	mem  *vfs.Mem
	o    ImportOptions
	told []string
}

// newImporting puts golden sets below /kafka.
func newImporting(t *testing.T, sets ...string) *importing {
	t.Helper()
	m := &importing{t: t, mem: vfs.NewMem()}
	m.fsys = m.mem
	m.o = ImportOptions{Config: nodeConfig(t), MetadataDir: filepath.Join(t.TempDir(), "raft"), Tell: func(line string) { m.told = append(m.told, line) }}
	for _, set := range sets {
		copyToMem(t, filepath.Join(goldenDir, set, "data"), m.mem, "/kafka/"+set)
		m.o.Sources = append(m.o.Sources, "/kafka/"+set)
	}
	return m
}

func nodeConfig(t *testing.T, set ...string) *config.Broker {
	t.Helper()
	cfg, _, err := config.Load(config.LoadOptions{Set: append([]string{"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data"}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// copyToMem copies a directory of the disk into memory, durably.
func copyToMem(t *testing.T, from string, m *vfs.Mem, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, name)
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return m.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return putFile(m, target, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := to; ; dir = filepath.Dir(dir) {
		if err := m.SyncDir(dir); err != nil {
			t.Fatal(err)
		}
		if dir == "/" {
			break
		}
	}
	entries, err := m.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := m.SyncDir(filepath.Join(to, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func putFile(m vfs.FS, name string, data []byte) error {
	f, err := m.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Sync(), f.Close())
}

func (m *importing) run() (Imported, error) { return Import(context.Background(), m.fsys, m.o) }

func (m *importing) mustRun() Imported {
	m.t.Helper()
	done, err := m.run()
	if err != nil {
		m.t.Fatal(err)
	}
	return done
}

// memTree is the names and sizes of all files below a directory.
func memTree(t *testing.T, fsys vfs.FS, dir string) (list []string) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			list = append(list, memTree(t, fsys, name)...)
			continue
		}
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %d", name, st.Size()))
	}
	return list
}

// checkImported: the partitions are where they belong, with their files, the metadata knows them, and all is in order.
func (m *importing) checkImported(when string, topics map[string]int) {
	m.t.Helper()
	image, err := cluster.ReadImage(m.o.MetadataDir)
	if err != nil {
		m.t.Fatal(when, err)
	}
	for name, n := range topics {
		topic := image.Topic(name)
		if topic == nil || len(topic.Partitions) != n {
			m.t.Fatalf("%s: topic %s is %+v", when, name, topic)
		}
		for i := range n {
			dir := filepath.Join("/data", partition.DirName(name, int32(i)))
			if id, err := partition.ReadTopicID(m.mem, dir); err != nil || id != topic.ID {
				m.t.Fatalf("%s: %s: id %s, %v", when, dir, id, err)
			}
		}
	}
	r, err := Check(m.mem, "/data", CheckOptions{MetadataDir: m.o.MetadataDir})
	if err != nil || r.Worst() > Note {
		m.t.Fatalf("%s: %v, %v", when, r.Findings, err)
	}
	if entries, _ := m.mem.ReadDir("/data"); slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".import") }) {
		m.t.Fatalf("%s: %v", when, entries)
	}
}

var epochsAndTxn = map[string]int{"epochs": 2, "txn": 2}

// TestImportMoves: directories are where they belong, their checkpoints and metadata with them, and gone where they were.
func TestImportMoves(t *testing.T) {
	m := newImporting(t, "epochs", "txn")
	if done := m.mustRun(); done.Topics != 2 || done.Partitions != 4 || done.Records != 63 {
		t.Errorf("%+v", done)
	}
	m.checkImported("moved", epochsAndTxn)
	for _, dir := range []string{"/kafka/epochs/epochs-0", "/kafka/txn/txn-1"} {
		if there, _ := exists(m.mem, dir); there {
			t.Errorf("%s is still there", dir)
		}
	}
	marks, err := partition.ReadCheckpoint(m.mem, "/data/"+partition.HighWatermarkFile)
	if err != nil || marks["txn-0"] != 37 || marks["epochs-0"] != 16 || len(marks) != 4 {
		t.Errorf("high watermarks %v, %v", marks, err)
	}
	image, _ := cluster.ReadImage(m.o.MetadataDir)
	for i, want := range []int32{7, 7} {
		if got := image.Topic("epochs").Partitions[i].LeaderEpoch; got != want {
			t.Errorf("partition %d begins with epoch %d, want %d", i, got, want)
		}
	}
	if done := m.mustRunAgain("/data"); done.Topics != 0 {
		t.Errorf("imported again: %+v", done)
	}
}

func (m *importing) mustRunAgain(sources ...string) Imported {
	m.t.Helper()
	m.o.Sources = sources
	return m.mustRun()
}

// TestDryRunChangesNothing: and says what would be done.
func TestDryRunChangesNothing(t *testing.T) {
	m := newImporting(t, "epochs")
	m.o.DryRun = true
	before := memTree(t, m.mem, "/")
	if done := m.mustRun(); done.Partitions != 2 || len(m.told) == 0 {
		t.Errorf("%+v %q", done, m.told)
	}
	if after := memTree(t, m.mem, "/"); !slices.Equal(before, after) {
		t.Errorf("files\n%v\nwere\n%v", after, before)
	}
	if has, _ := cluster.HasMetadata(m.o.MetadataDir); has {
		t.Error("there is metadata")
	}
}

// TestImportInPlace: the log directory is Kafka's own, which the node goes on with.
func TestImportInPlace(t *testing.T) {
	m := newImporting(t)
	copyToMem(t, filepath.Join(goldenDir, "epochs", "data"), m.mem, "/data")
	m.o.Sources = []string{"/data"}
	m.mustRun()
	m.checkImported("in place", map[string]int{"epochs": 2})
	p, err := partition.ReadProperties(m.mem, "/data")
	image, _ := cluster.ReadImage(m.o.MetadataDir)
	if err != nil || image.ClusterID != p.ClusterID {
		t.Errorf("cluster %s, %+v, %v", image.ClusterID, p, err)
	}
	if there, _ := exists(m.mem, "/data/"+partition.CleanShutdownFile); !there {
		t.Error("the marker of the clean stop is gone")
	}
}

// TestImportIntoSeveralDirectories: what lies in one of the node's directories stays there, all else comes into the first. The metadata has each
// partition where it is.
func TestImportIntoSeveralDirectories(t *testing.T) {
	m := newImporting(t, "epochs")
	m.o.Config = nodeConfig(t, "log.dirs=/data,/more")
	copyToMem(t, filepath.Join(goldenDir, "txn", "data"), m.mem, "/more")
	if err := errors.Join(m.mem.MkdirAll("/data", 0o755), m.mem.Rename("/more/txn-0", "/kafka/epochs/txn-0")); err != nil {
		t.Fatal(err)
	}
	m.o.Sources = append(m.o.Sources, "/more")
	if done := m.mustRun(); done.Partitions != 4 {
		t.Errorf("%+v", done)
	}
	checkSays := func(dir string, want ...string) {
		t.Helper()
		r, err := Check(m.mem, dir, CheckOptions{MetadataDir: m.o.MetadataDir})
		var got []string
		for _, f := range r.Findings {
			if f.Severity > Note {
				got = append(got, f.String())
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", dir, got, err)
		}
	}
	checkSays("/data")
	checkSays("/more")
	image, _ := cluster.ReadImage(m.o.MetadataDir)
	for name, dir := range map[string]string{"epochs-0": "/data", "epochs-1": "/data", "txn-0": "/data", "txn-1": "/more"} {
		if there, _ := exists(m.mem, dir+"/"+name); !there {
			t.Errorf("%s is not in %s", name, dir)
		}
		properties, err := partition.ReadProperties(m.mem, dir)
		topic, number, _ := strings.Cut(name, "-")
		got := image.Topic(topic).Partitions[number[0]-'0'].Directory(1)
		if err != nil || got != properties.DirectoryID {
			t.Errorf("the metadata has %s in %x, %s is %x, %v", name, got, dir, properties.DirectoryID, err)
		}
	}
	if err := errors.Join(m.mem.Rename("/data/epochs-0", "/more/epochs-0"), m.mem.Remove("/more/txn-1/partition.metadata")); err != nil {
		t.Fatal(err)
	}
	checkSays("/data", "error epochs-0: missing: it had the offsets up to 15")
	checkSays("/more", "warning epochs-0: the metadata has it in another log directory: the next start puts it aside if it is there, too",
		"warning txn-1/partition.metadata: missing: the next start writes it, by the topic's name")
}

// TestKafkasMetadataIsTakenOver: with it come the number of partitions, the settings, the leader epochs and the producer ids that are given out. What
// isn't taken over is told.
func TestKafkasMetadataIsTakenOver(t *testing.T) {
	m := newImporting(t, "metadata")
	k, err := readKafkaMetadata(m.mem, "/kafka/metadata/"+partition.KafkaMetadataDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(k.topics) != 3 || k.nextProducerID < 1 || fmt.Sprint(k.configs["orders"]) != "map[cleanup.policy:compact retention.ms:-1]" || k.configs["gone"] != nil {
		t.Errorf("%d topics, producer ids from %d, configs %v", len(k.topics), k.nextProducerID, k.configs)
	}
	m.mustRun()
	m.checkImported("with metadata", map[string]int{"orders": 2, "events.in": 2, "__consumer_offsets": 3})
	image, _ := cluster.ReadImage(m.o.MetadataDir)
	if got := image.Config(kmsg.ConfigResourceTypeTopic, "orders"); fmt.Sprint(got) != "map[cleanup.policy:compact retention.ms:-1]" {
		t.Errorf("settings %v", got)
	}
	if told := strings.Join(m.told, "\n"); !strings.Contains(told, "1 client quotas are not taken over") || strings.Contains(told, "no metadata of Kafka") {
		t.Errorf("told\n%s", told)
	}
	c, err := cluster.Open(cluster.Options{NodeID: 1, Dir: m.o.MetadataDir, Config: m.o.Config})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	epoch, err := c.Register(context.Background(), cluster.Registration{BrokerID: 1, ClusterID: c.Image().ClusterID})
	if err != nil {
		t.Fatal(err)
	}
	if first, _, err := c.AllocateProducerIDs(context.Background(), 1, epoch); err != nil || first != k.nextProducerID {
		t.Errorf("producer ids from %d, want %d, %v", first, k.nextProducerID, err)
	}
}

// TestImportOfStrays: what was put aside comes back.
func TestImportOfStrays(t *testing.T) {
	m := newImporting(t)
	copyToMem(t, filepath.Join(goldenDir, "txn", "data"), m.mem, "/data")
	for i, name := range []string{"/data/txn-0", "/data/txn-1"} {
		stray := name + ".0123456789abcdef0123456789abcdef-stray"
		if err := m.mem.Rename(name, stray); err != nil {
			t.Fatal(i, err)
		}
		m.o.Sources = append(m.o.Sources, stray)
	}
	m.mustRun()
	m.checkImported("strays", map[string]int{"txn": 2})
}

// TestImportRefuses: what can't be imported is said, and nothing is changed.
func TestImportRefuses(t *testing.T) {
	remove := func(name string) func(*importing) {
		return func(m *importing) {
			if err := m.mem.RemoveAll(name); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		sets   []string
		change func(*importing)
		says   string
	}{
		"a missing partition":                {[]string{"epochs"}, remove("/kafka/epochs/epochs-0"), "1 of the 2 partitions of epochs are not among the directories"},
		"no topic id":                        {[]string{"epochs"}, remove("/kafka/epochs/epochs-0/partition.metadata"), "partition.metadata"},
		"a missing segment":                  {[]string{"txn"}, remove("/kafka/txn/txn-0/00000000000000000012.log"), "is damaged"},
		"nothing there":                      {nil, func(m *importing) { m.o.Sources = []string{"/nowhere"} }, "not exist"},
		"no partitions there":                {nil, func(m *importing) { _ = m.mem.MkdirAll("/x/y", 0o755); m.o.Sources = []string{"/x"} }, "neither a partition's directory"},
		"something in the way":               {[]string{"epochs"}, func(m *importing) { _ = m.mem.MkdirAll("/data/epochs-1", 0o755) }, "/data/epochs-1 is there already"},
		"too few in the settings":            {[]string{"coordinators"}, func(m *importing) { m.o.Config = nodeConfig(m.t, "offsets.topic.num.partitions=20") }, "offsets.topic.num.partitions says 20"},
		"a partition that Kafka has more of": {[]string{"metadata"}, remove("/kafka/metadata/orders-1"), "1 of the 2 partitions of orders"},
		"a bad setting":                      {[]string{"epochs"}, func(m *importing) { m.o.TopicConfigs = map[string]string{"retention.ms": "x"} }, "retention.ms"},
		"a running broker": {[]string{"epochs"}, func(m *importing) {
			if _, err := m.mem.Lock("/kafka/epochs/.lock"); err != nil {
				m.t.Fatal(err)
			}
		}, "a broker is running on it"},
		"another node": {nil, func(m *importing) {
			copyToMem(m.t, filepath.Join(goldenDir, "epochs", "data"), m.mem, "/data")
			m.o.Sources, m.o.Config = []string{"/data"}, nodeConfig(m.t, "node.id=7")
		}, "is of node 1, the settings say node.id=7"},
		"the clusters of two directories": {nil, func(m *importing) {
			copyToMem(m.t, filepath.Join(goldenDir, "epochs", "data"), m.mem, "/data")
			copyToMem(m.t, filepath.Join(goldenDir, "txn", "data"), m.mem, "/more")
			m.o.Sources, m.o.Config = []string{"/data", "/more"}, nodeConfig(m.t, "log.dirs=/data,/more")
		}, "/more is of cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newImporting(t, tt.sets...)
			tt.change(m)
			before := memTree(t, m.mem, "/")
			if _, err := m.run(); !errors.Is(err, ErrImport) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
			if after := memTree(t, m.mem, "/"); !slices.Equal(before, after) {
				t.Errorf("files\n%v\nwere\n%v", after, before)
			}
		})
	}
}

// TestImportOfPart: with leave, partitions that aren't there begin empty.
func TestImportOfPart(t *testing.T) {
	m := newImporting(t)
	copyToMem(t, filepath.Join(goldenDir, "epochs", "data"), m.mem, "/kafka")
	m.o.Sources, m.o.Partial = []string{"/kafka/epochs-1"}, true
	if done := m.mustRun(); done.Partitions != 1 {
		t.Errorf("%+v", done)
	}
	image, _ := cluster.ReadImage(m.o.MetadataDir)
	if topic := image.Topic("epochs"); len(topic.Partitions) != 2 || topic.Partitions[0].LeaderEpoch != 0 || topic.Partitions[1].LeaderEpoch != 7 {
		t.Errorf("%+v", topic)
	}
}

func (m *importing) knows(topic string) bool {
	image, err := cluster.ReadImage(m.o.MetadataDir)
	return err == nil && image.Topic(topic) != nil
}

var errInjected = errors.New("injected")

// TestImportErrors: each operation on the file system fails once. What was brought is taken back, or the import is done.
func TestImportErrors(t *testing.T) {
	for _, copying := range []bool{false, true} {
		for op := 0; ; op += 3 {
			m := newImporting(t, "epochs")
			m.o.Copy = copying
			before := memTree(t, m.mem, "/kafka")
			ops, failed := 0, false
			m.fsys = vfs.Inject(m.mem, func(o vfs.Op) error {
				ops++
				if ops-1 == op {
					failed = true
					return errInjected
				}
				return nil
			})
			_, err := m.run()
			when := fmt.Sprintf("copy %t, operation %d", copying, op)
			m.fsys = m.mem
			journal, _ := exists(m.mem, "/data/"+JournalFile)
			switch {
			case journal: // it could not even be taken back, or it was done
				m.mustRunAgain()
				m.checkImported(when, map[string]int{"epochs": 2})
			case err == nil, m.knows("epochs"): // only the end of the journal may not be durable
				m.checkImported(when, map[string]int{"epochs": 2})
			default:
				if after := memTree(t, m.mem, "/kafka"); !slices.Equal(before, after) {
					t.Fatalf("%s: %v: files\n%v\nwere\n%v", when, err, after, before)
				}
				if there, _ := exists(m.mem, "/data/epochs-0"); there {
					t.Fatalf("%s: %v: it was not taken back", when, err)
				}
			}
			if !failed {
				break
			}
		}
	}
}

// TestImportCrashes: the machine stops before each operation that changes something, and loses what wasn't durable. The next import finishes what was begun.
func TestImportCrashes(t *testing.T) {
	for seed, copying := range []bool{false, true} {
		for op := 0; ; op++ {
			m := newImporting(t, "epochs")
			m.o.Copy = copying
			rng := rand.New(rand.NewPCG(uint64(seed), uint64(op)))
			ops := 0
			var crashed *vfs.Mem
			m.fsys = vfs.Inject(m.mem, func(o vfs.Op) error {
				if o.Kind.Changes() {
					if ops++; ops-1 == op {
						crashed = m.mem.CrashClone(rng)
					}
				}
				if crashed != nil {
					return errInjected // the process is no more
				}
				return nil
			})
			_, err := m.run()
			if crashed == nil {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			m.mem, m.fsys = crashed, crashed
			journal, _ := exists(crashed, "/data/"+JournalFile)
			if journal {
				m.o.Sources = nil
			}
			when := fmt.Sprintf("copy %t, operation %d", copying, op)
			if !journal && m.knows("epochs") {
				m.checkImported(when, map[string]int{"epochs": 2}) // it was done
				continue
			}
			if _, err := m.run(); err != nil {
				t.Fatal(when, err)
			}
			m.checkImported(when, map[string]int{"epochs": 2})
		}
	}
}
