package partition

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// switched is a file system that can be told to refuse operations.
type switched struct {
	mu     sync.Mutex
	refuse func(vfs.Op) error
}

func (s *switched) ask(op vfs.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		return nil
	}
	return s.refuse(op)
}

func (s *switched) set(refuse func(vfs.Op) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func full(vfs.Op) error { return syscall.ENOSPC }

// TestCreationWaitsForNoDisk: a new replica is led and read before it has files, on a disk that takes none, and takes records as soon as
// there is room.
func TestCreationWaitsForNoDisk(t *testing.T) {
	var disk switched
	n := open(t, vfs.Inject(vfs.NewMem(), disk.ask), topicConfig(t))
	disk.set(full)
	p := n.lead()
	if _, res, err := read(t, p, ReadRequest{CurrentLeaderEpoch: -1}); err != nil || res.HW != 0 {
		t.Error(err, res)
	}
	if f, err := p.OffsetFor(LatestTimestamp, ReadUncommitted, -1); err != nil || f.Offset != 0 {
		t.Error(err, f)
	}
	if f, err := p.OffsetFor(0, ReadUncommitted, -1); err != nil || f.Offset != -1 {
		t.Error(err, f)
	}
	for range 2 {
		_, err := produce(t, p, spec{})
		wantCode(t, err, kerr.KafkaStorageError)
	}
	disk.set(nil)
	mustProduce(t, p, spec{})
	n.close()
	if end := open(t, n.fsys, n.topic).Get("t", 0).Offsets().End; end != 1 {
		t.Error(end)
	}
}

// TestCreationOnABrokenDisk takes the partition offline, and no other.
func TestCreationOnABrokenDisk(t *testing.T) {
	var disk switched
	n := open(t, vfs.Inject(vfs.NewMem(), disk.ask), topicConfig(t))
	for _, op := range []vfs.Kind{vfs.OpMkdir, vfs.OpCreate, vfs.OpRename, vfs.OpSync, vfs.OpSyncDir} {
		name := op.String()
		p, err := n.Create(name, protocol.UUID{byte(op)}, 0, n.topic, start)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
			t.Fatal(err)
		}
		disk.set(func(o vfs.Op) error {
			if o.Kind == op && strings.Contains(o.Name, name) {
				return syscall.EIO
			}
			return nil
		})
		// The files may be there already, so that only their fsync fails.
		if _, err := p.Append(spec{}.request(t)); (op == vfs.OpSync || op == vfs.OpSyncDir) && !isCode(err, kerr.KafkaStorageError) {
			t.Errorf("%s: %v", name, err)
		}
		disk.set(nil)
		if err := p.Err(); err != nil {
			_, err := p.Append(spec{}.request(t))
			wantCode(t, err, kerr.KafkaStorageError)
		}
	}
	mustProduce(t, n.lead(), spec{})
}

// TestMetadataIsDurableBeforeRecords: whenever something is written to a log, partition.metadata would survive a loss of power.
func TestMetadataIsDurableBeforeRecords(t *testing.T) {
	for seed := range uint64(20) {
		disk := vfs.NewMem()
		rng := rand.New(rand.NewPCG(seed, 1))
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			if op.Kind != vfs.OpWrite || !strings.HasSuffix(op.Name, ".log") {
				return nil
			}
			dir := op.Name[:strings.LastIndexByte(op.Name, '/')]
			if id, err := readMetadata(disk.CrashClone(rng), dir); err != nil || id != (protocol.UUID{1}) {
				t.Errorf("%s: %v, %v", op.Name, id, err)
			}
			return nil
		})
		n := open(t, fsys, topicConfig(t))
		for i := range int32(4) {
			p, err := n.Create("t", protocol.UUID{1}, i, n.topic, start)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				p.make()
			}
			if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
				t.Fatal(err)
			}
			mustProduce(t, p, spec{})
		}
	}
}

// TestFirstAppendsShareTheFsyncOfTheLogDirectory that their partitions were made in.
func TestFirstAppendsShareTheFsyncOfTheLogDirectory(t *testing.T) {
	syncs := 0
	n := open(t, vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir && op.Name == "/data" {
			syncs++
		}
		return nil
	}), topicConfig(t))
	var all []*Partition
	for i := range int32(20) {
		p, err := n.Create("t", protocol.UUID{1}, i, n.topic, start)
		if err != nil {
			t.Fatal(err)
		}
		p.make()
		if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	syncs = 0
	for _, p := range all {
		mustProduce(t, p, spec{})
	}
	if syncs != 1 {
		t.Errorf("%d fsyncs of the log directory", syncs)
	}
}

// TestDirSync: who comes while an fsync runs waits for the next; a failed one is the last.
func TestDirSync(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan error)
	count := 0
	d := dirSync{dir: "/d", fsys: vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind != vfs.OpSyncDir {
			return nil
		}
		count++
		began <- struct{}{}
		return <-goOn
	})}
	if err := d.fsys.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 8)
	first := d.changed()
	go func() { done <- d.sync(first) }()
	<-began
	for range 5 {
		go func(change int64) { done <- d.sync(change) }(d.changed())
	}
	goOn <- nil
	<-began
	goOn <- nil
	for range 6 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := d.sync(first); err != nil || count != 2 {
		t.Errorf("%v, %d fsyncs", err, count)
	}
	go func() { done <- d.sync(d.changed()) }()
	<-began
	goOn <- syscall.EIO
	if err := <-done; err == nil {
		t.Error("no error")
	}
	if err := d.sync(first); err == nil || count != 3 {
		t.Errorf("%v, %d fsyncs", err, count)
	}
}

// TestRemovedBeforeItWasMade: the files of a replica that is gone don't appear any more.
func TestRemovedBeforeItWasMade(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	p := n.lead()
	if err := n.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	p.make()
	if slices.Contains(names(t, disk, "/data"), "t-0") || strings.Contains(n.logs.String(), "ERROR") {
		t.Error(names(t, disk, "/data"), n.logs)
	}
}

// TestSuccessorIsNotTakenForItsPredecessor: what checkpoints say of a partition that was deleted does not hold for the next of its
// name, also if the process dies at once.
func TestSuccessorIsNotTakenForItsPredecessor(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	p := n.lead()
	for range 10 {
		mustProduce(t, p, spec{})
	}
	if _, err := p.DeleteRecords(8); err != nil {
		t.Fatal(err)
	}
	p.compaction.mu.known, p.compaction.mu.cleaned = true, 9
	for _, checkpoint := range []func() error{p.Sync, n.checkpointPoints, n.checkpointHighWatermarks, n.checkpointCleaned} {
		if err := checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	q, err := n.Create("t", protocol.UUID{2}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Lead(0, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		mustProduce(t, q, spec{})
	}
	again := open(t, disk.CrashClone(nil), n.topic)
	q = again.Get("t", 0)
	if o := q.Offsets(); o.Start != 0 || o.End != 3 {
		t.Errorf("%+v\n%s", o, again.logs)
	}
	for _, name := range []string{recoveryPointFile, logStartFile, highWatermarkFile, cleanerFile} {
		if got := readFile(t, again.fsys, "/data/"+name); bytes.Contains(got, []byte("t 0 ")) && !bytes.Contains(got, []byte("t 0 0\n")) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestIdlePartitionIsSmall bounds what a replica that nothing was appended to takes in the set.
func TestIdlePartitionIsSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("memory is another one under the race detector")
	}
	n := open(t, vfs.NewMem(), topicConfig(t))
	const many = 1000
	got := testing.AllocsPerRun(1, func() {
		for i := range int32(many) {
			p, err := n.Create(fmt.Sprint("topic-", i), protocol.UUID{1}, i, n.topic, start)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got > 60*many {
		t.Errorf("%.0f allocations per partition", got/many)
	}
}

// TestCrew: work is done in order by at most so many goroutines; what has not begun when the crew is closed is not done.
func TestCrew(t *testing.T) {
	c := crew{limit: 2}
	var mu sync.Mutex
	var done []int
	busy, most := 0, 0
	turn := make(chan struct{})
	for i := range 6 {
		c.add(func() {
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			<-turn
			mu.Lock()
			busy--
			done = append(done, i)
			mu.Unlock()
		})
	}
	for range 3 {
		turn <- struct{}{}
	}
	closed := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(closed)
		c.close()
	}()
	go func() {
		for {
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	<-closed
	cancel()
	c.add(func() { t.Error("work for a closed crew") })
	if most > 2 || len(done) < 3 || busy != 0 {
		t.Errorf("%d at once, done %v, %d busy", most, done, busy)
	}
}
