package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/partition"
	"oncelog/protocol"
)

// copySet copies a golden log directory into a folder of the test's own.
func copySet(t testing.TB, set string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(goldenDir, set, "data"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// filesOf is all files below a directory, with content and time of the last change.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		st, err := d.Info()
		files[name] = st.ModTime().String() + string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check checks a directory, and that this changes nothing.
func check(t testing.TB, dir string, o CheckOptions) CheckReport {
	t.Helper()
	before := filesOf(t, dir)
	var told []Finding
	o.Found = func(f Finding) { told = append(told, f) }
	r, err := Check(vfs.OS, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != len(r.Findings) {
		t.Errorf("told %d of %d findings", len(told), len(r.Findings))
	}
	after := filesOf(t, dir)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
		delete(after, name)
	}
	if len(after) > 0 {
		t.Errorf("new files: %v", after)
	}
	return r
}

// TestCheckOfKafkasDirectories: what Kafka wrote is in order, and all that was derived from the logs comes out as Kafka wrote it.
func TestCheckOfKafkasDirectories(t *testing.T) {
	for _, set := range goldenSets(t) {
		r := check(t, filepath.Join(goldenDir, set, "data"), CheckOptions{})
		if r.Worst() > Note || r.Partitions == 0 || r.Batches == 0 {
			t.Errorf("%s: %+v", set, r)
		}
	}
}

// TestCheckFinds: each damage, and what has to be said of it.
func TestCheckFinds(t *testing.T) {
	const (
		seg0 = "/" + base0
		last = "/00000000000000000033"
	)
	flip := func(i int) func([]byte) []byte { return func(b []byte) []byte { b[i] ^= 1; return b } }
	cutBy := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }
	for name, tt := range map[string]struct {
		set, file string
		change    func([]byte) []byte // nil removes the file
		severity  Severity
		says      string // path and text
	}{
		"flipped record":                 {"txn", "txn-0" + seg0 + ".log", flip(70), Error, "txn-0" + seg0 + ".log: batch at 0 (offset 0): corrupt batch: CRC"},
		"impossible length":              {"txn", "txn-0" + seg0 + ".log", func(b []byte) []byte { b[8] = 0x80; return b }, Error, "whole batches with"},
		"torn in the middle of the log":  {"txn", "txn-0" + seg0 + ".log", cutBy(10), Error, "before the end of the segment"},
		"torn at the end":                {"txn", "txn-0" + last + ".log", cutBy(10), Error, "after a clean stop"},
		"torn at the end, killed":        {"killed", "killed-0/00000000000000000013.log", cutBy(10), Warning, "are no whole batch: the next start cuts them off"},
		"zeros at the end, killed":       {"killed", "killed-0/00000000000000000013.log", func(b []byte) []byte { return append(b, make([]byte, 99)...) }, Warning, "99 zeros at the end"},
		"a segment is missing":           {"txn", "txn-0/00000000000000000012.log", nil, Error, "the offsets from 12 to 13 are missing"},
		"the last segment is missing":    {"txn", "txn-0" + last + ".log", nil, Error, "its end was 37 when it was closed"},
		"offsets go back":                {"txn", "txn-0" + last + ".log", func(b []byte) []byte { return append(b, b...) }, Error, "an offset from 37 on should follow"},
		"leader epoch of a batch":        {"epochs", "epochs-0/00000000000000000009.log", flip(15), Error, "leader-epoch-checkpoint: offset 9 is of epoch"},
		"leader epochs":                  {"epochs", "epochs-0/leader-epoch-checkpoint", func([]byte) []byte { return []byte("0\n1\n") }, Warning, "made anew from the log"},
		"index is missing":               {"plain", "segments-0" + seg0 + ".index", nil, Warning, ".index: missing"},
		"index of an odd size":           {"plain", "segments-0" + seg0 + ".index", cutBy(1), Warning, "no number of entries"},
		"index offset":                   {"plain", "segments-0" + seg0 + ".index", flip(3), Warning, "entry 0: offset"},
		"index position":                 {"plain", "segments-0" + seg0 + ".index", flip(7), Warning, "entry 0: no batch begins at"},
		"index beyond the end":           {"plain", "segments-0" + seg0 + ".index", func(b []byte) []byte { b[len(b)-4] = 0x7f; return b }, Warning, "1 entries point behind the end"},
		"index of zeros":                 {"plain", "segments-0" + seg0 + ".index", func(b []byte) []byte { clear(b); return b }, Warning, "bytes behind its entries"},
		"time index timestamp":           {"plain", "segments-0" + seg0 + ".timeindex", flip(7), Warning, "entry 0: timestamp"},
		"time index offset":              {"plain", "segments-0" + seg0 + ".timeindex", flip(11), Warning, "entry 0: no batch ends with offset"},
		"time index is short":            {"plain", "segments-0" + seg0 + ".timeindex", cutBy(12), Warning, "the largest timestamp of the segment"},
		"transaction index is missing":   {"txn", "txn-0/00000000000000000014.txnindex", nil, Error, "readers of committed records would see it"},
		"transaction index is torn":      {"txn", "txn-0/00000000000000000014.txnindex", cutBy(3), Warning, "made anew when it is needed"},
		"transaction index producer":     {"txn", "txn-0/00000000000000000014.txnindex", flip(9), Error, "there is no abort marker of that producer"},
		"transaction index first":        {"txn", "txn-0/00000000000000000014.txnindex", flip(17), Error, "it began at"},
		"transaction index last stable":  {"txn", "txn-0/00000000000000000014.txnindex", flip(33), Error, "the last stable offset was"},
		"snapshot is damaged":            {"txn", "txn-1/00000000000000000003.snapshot", flip(20), Warning, "the next start goes without it"},
		"snapshot of another log":        {"txn", "txn-1/00000000000000000003.snapshot", foreignSnapshot, Error, "producer 2: last sequence"},
		"topic id is missing":            {"txn", "txn-1/partition.metadata", nil, Error, "to which topic the records belong"},
		"topic id":                       {"txn", "txn-1/partition.metadata", func([]byte) []byte { return []byte("version: 0\n") }, Error, "malformed partition.metadata"},
		"checkpoint":                     {"txn", "recovery-point-offset-checkpoint", func([]byte) []byte { return []byte("0\n5\nx\n") }, Warning, "malformed checkpoint"},
		"properties":                     {"txn", "meta.properties", func([]byte) []byte { return []byte("version=1\n") }, Error, "unusable meta.properties"},
		"properties are missing":         {"txn", "meta.properties", nil, Warning, "isn't known to which node"},
		"coordinator's record":           {"coordinators", "__transaction_state-2" + seg0 + ".log", badRecord, Error, "record at offset 0: Could not read record"},
		"offline until somebody decides": {"txn", "txn-1/damage.txt", func([]byte) []byte { return []byte("lost it\n") }, Error, "txn-1/damage.txt: lost it"},
		"something foreign":              {"txn", "txn-1/notes.txt", func([]byte) []byte { return []byte("x") }, Note, "it is left alone"},
		"kept by a recovery":             {"txn", "txn-1/" + base0 + ".log.cut", func([]byte) []byte { return fileOf(t, "txn", "txn-0"+last+".log") }, Note, "kept by a recovery: 2 records in 4 whole batches"},
		"nothing was kept":               {"txn", "txn-1/" + base0 + ".log.cut.1", func([]byte) []byte { return []byte("x") }, Note, "kept by a recovery: 0 records"},
		"window file is damaged":         {"txn", "txn-1/00000000000000000003.window", func([]byte) []byte { return []byte("x") }, Warning, "00000000000000000003.window: "},
		"window file without snapshot":   {"txn", "txn-1/00000000000000000002.window", func([]byte) []byte { return []byte("x") }, Note, "its snapshot is missing"},
		"snapshot is short":              {"txn", "txn-1/00000000000000000003.snapshot", cutBy(9), Warning, "the next start goes without it"},
		"snapshot behind the end":        {"txn", "txn-1/00000000000000000099.snapshot", func([]byte) []byte { return []byte("x") }, Warning, "lies behind the end of the log"},
		"zeros in the middle":            {"txn", "txn-0" + last + ".log", func(b []byte) []byte { clear(b[80:110]); return b }, Error, "behind it are"},
		"zeros at the end":               {"txn", "txn-0" + last + ".log", func(b []byte) []byte { return append(b, make([]byte, 99)...) }, Error, "after a clean stop"},
		"time index is missing":          {"plain", "segments-0" + seg0 + ".timeindex", nil, Warning, ".timeindex: missing"},
		"log start behind the end":       {"txn", "log-start-offset-checkpoint", func([]byte) []byte { return []byte("0\n1\ntxn 0 99\n") }, Warning, "the next start begins anew there"},
		"high watermark behind the end":  {"txn", "replication-offset-checkpoint", func([]byte) []byte { return []byte("0\n1\ntxn 0 99\n") }, Warning, "the high watermark is 99"},
		"compacted behind the end":       {"txn", "cleaner-offset-checkpoint", func([]byte) []byte { return []byte("0\n1\ntxn 0 99\n") }, Warning, "compacted up to 99"},
		"left by an interrupted write":   {"txn", "txn-1/leader-epoch-checkpoint.tmp", func([]byte) []byte { return nil }, Note, "interrupted write"},
		"waits for its deletion":         {"txn", "txn-1/" + base0 + ".log.deleted", func([]byte) []byte { return nil }, Note, "waits for its deletion"},
		"interrupted compaction":         {"txn", "txn-1/" + base0 + ".log.cleaned", func([]byte) []byte { return []byte("x") }, Warning, "interrupted"},
		"no partition":                   {"txn", "junk/x", func([]byte) []byte { return []byte("x") }, Error, "junk: no partition"},
		"put aside":                      {"txn", "txn-1.0123456789abcdef0123456789abcdef-stray/x", func([]byte) []byte { return nil }, Note, "put aside"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copySet(t, tt.set)
			file := filepath.Join(dir, tt.file)
			if tt.change == nil {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else if _, err := os.Stat(file); err == nil {
				edit(t, file, tt.change)
			} else if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, tt.change(nil), 0o644)); err != nil {
				t.Fatal(err)
			}
			r := check(t, dir, CheckOptions{})
			var all []string
			for _, f := range r.Findings {
				if f.Severity == tt.severity && strings.Contains(f.Path+": "+f.What, tt.says) {
					return
				}
				all = append(all, f.String())
			}
			t.Errorf("not found: %s %s\n%s", tt.severity, tt.says, strings.Join(all, "\n"))
		})
	}
}

func fileOf(t *testing.T, set, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, set, "data", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCheckOfOurs: what a killed broker of ours leaves is in order, its snapshots within segments too; and a wrong one is found.
func TestCheckOfOurs(t *testing.T) {
	cfg, _, err := config.Load(config.LoadOptions{Set: []string{"log.recovery.max.bytes=1"}})
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewMem()
	s, err := partition.OpenSet(partition.Options{FS: disk, Dir: "/data", NodeID: 1, Config: cfg}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Create("t", [16]byte{1}, 0, cfg.Topic(nil), time.Now())
	if err == nil {
		err = p.Lead(0, []int32{1}, []int32{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	snapshots := func(m *vfs.Mem) (names []string) {
		entries, _ := m.ReadDir("/data/t-0")
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".snapshot") {
				names = append(names, "/data/t-0/"+e.Name())
			}
		}
		return names
	}
	killed := disk
	for i := int32(0); len(snapshots(killed)) < 2 && i < 100_000; i++ {
		b, err := protocol.AppendBatch(nil, protocol.BatchSpec{ProducerID: 7, BaseSequence: i}, []protocol.Record{{Value: []byte("v")}})
		if err == nil {
			_, err = p.Append(partition.AppendRequest{Batch: b, Acks: 1, ExpectEpoch: -1, Now: time.Now()})
		}
		if err != nil {
			t.Fatal(err)
		}
		killed = disk.CrashClone(nil)
	}
	s.Abandon()
	r, err := Check(killed, "/data", CheckOptions{})
	if err != nil || r.Worst() > Note || r.Partitions != 1 || len(snapshots(killed)) != 2 {
		t.Fatalf("%v: %+v, %v", err, r, snapshots(killed))
	}
	for _, f := range r.Findings {
		if strings.Contains(f.What, "no segment begins there") {
			t.Error(f)
		}
	}
	name := snapshots(killed)[0]
	data, err := vfs.ReadFile(killed, name, 1<<20)
	if err == nil {
		err = vfs.WriteFileAtomic(killed, name, foreignSnapshot(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err = Check(killed, "/data", CheckOptions{}); err != nil || r.Worst() != Error {
		t.Errorf("%v: %+v", err, r)
	}
}

// foreignSnapshot changes what a snapshot says of its first producer, with the right checksum.
func foreignSnapshot(b []byte) []byte {
	b[23] ^= 1 // last sequence
	binary.BigEndian.PutUint32(b[2:], checksum(b[6:]))
	return b
}

// badRecord cuts the value of the first record short, with the right checksum.
func badRecord(b []byte) []byte {
	i := strings.Index(string(b), "tx-empty") + len("tx-empty") + 2 // the version of the value
	b[i] = 1
	for k := i + 1; k < len(b)-1; k++ {
		b[k] = 0xff
	}
	binary.BigEndian.PutUint32(b[17:], checksum(b[21:]))
	return b
}

// TestCheckLeavesARunningBrokerAlone: a directory in use is refused, unless it is to be checked all the same.
func TestCheckLeavesARunningBrokerAlone(t *testing.T) {
	dir := copySet(t, "killed")
	lock, err := vfs.OS.Lock(filepath.Join(dir, partition.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(vfs.OS, dir, CheckOptions{}); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	edit(t, filepath.Join(dir, "killed-0/00000000000000000013.log"), func(b []byte) []byte { return b[:len(b)-5] }) // being written
	if r := check(t, dir, CheckOptions{Live: true}); r.Worst() > Note {
		t.Errorf("%+v", r.Findings)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if r := check(t, dir, CheckOptions{}); r.Worst() != Warning {
		t.Errorf("%+v", r.Findings)
	}
	if _, err := Check(vfs.OS, filepath.Join(dir, "nowhere"), CheckOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestCheckOfMetadata: partitions against what the cluster knows.
func TestCheckOfMetadata(t *testing.T) {
	dir := copySet(t, "epochs")
	cfg, _, err := config.Load(config.LoadOptions{Set: []string{"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Open(cluster.Options{NodeID: 1, Dir: filepath.Join(dir, metadataFolder), Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	id, err := partition.ReadTopicID(vfs.OS, filepath.Join(dir, "epochs-0"))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Adopt(context.Background(), cluster.Adoption{ClusterID: "another", Topics: []cluster.AdoptedTopic{
		{Name: "epochs", ID: id, Partitions: []cluster.AdoptedPartition{{LeaderEpoch: 3}}},
		{Name: "gone", ID: [16]byte{1}, Partitions: make([]cluster.AdoptedPartition, 1)},
	}})
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, partition.RecoveryPointFile), func(b []byte) []byte {
		return []byte(strings.Replace(string(b), "0\n2\n", "0\n3\n", 1) + "gone 0 7\n")
	})
	r := check(t, dir, CheckOptions{})
	for _, want := range []string{
		"error meta.properties: cluster.id is", "error epochs-0/leader-epoch-checkpoint: the newest epoch is 6, the metadata is at 3",
		"warning epochs-1: the topic has 1 partitions in the metadata", "error gone-0: missing: it had the offsets up to 6",
	} {
		found := false
		for _, f := range r.Findings {
			found = found || strings.HasPrefix(f.String(), want)
		}
		if !found {
			t.Errorf("not found: %s\n%v", want, r.Findings)
		}
	}
}
