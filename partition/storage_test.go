package partition

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// TestStorageErrors fails each operation of the file system once: whatever it was, what was acknowledged is there after a restart, and a
// partition that says it is well goes on.
func TestStorageErrors(t *testing.T) {
	boom := errors.New("boom")
	for target := 1; ; target++ {
		disk := vfs.NewMem()
		count := 0
		var mu sync.Mutex
		var failed vfs.Op
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == vfs.OpClose {
				return nil
			}
			if count++; count == target {
				failed = op
				return boom
			}
			return nil
		})
		acked := int64(0)
		runWithErrors(t, fsys, &acked)
		if count < target {
			break
		}
		n := open(t, disk.CrashClone(nil), topicConfig(t, small(t)...))
		p := n.Get("t", 0)
		if p == nil {
			if acked > 0 {
				t.Fatalf("%v: the partition is gone", failed)
			}
			continue
		}
		if err := p.Err(); err != nil {
			t.Fatalf("%v: %v", failed, err)
		}
		if end := p.Offsets().End; end < acked {
			t.Fatalf("%v: the log ends at %d, %d was acknowledged", failed, end, acked)
		}
	}
}

// runWithErrors works with a set as far as it gets.
func runWithErrors(t *testing.T, fsys vfs.FS, acked *int64) {
	t.Helper()
	topic := topicConfig(t, small(t)...)
	n, err := tryOpen(t, fsys, "/data", topic)
	if err != nil {
		return
	}
	p, err := n.Create("t", protocol.UUID{1}, 0, topic, start)
	if err != nil {
		_ = n.Close()
		return
	}
	if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	for i := range int32(12) {
		a, err := produce(t, p, spec{pid: 3, seq: i, txn: i%3 > 0})
		if err == nil {
			*acked = a.LastOffset + 1
		}
		if i%3 == 2 {
			if last, err := p.WriteMarker(MarkerRequest{ProducerID: 3, ExpectEpoch: -1, Now: start}); err == nil {
				*acked = last + 1
			}
		}
	}
	_ = p.Sync()
	_ = n.checkpointPoints()
	_ = n.Close()
}

// TestFailedSyncTakesThePartitionOffline, with one line; the others go on.
func TestFailedSyncTakesThePartitionOffline(t *testing.T) {
	var bad sync.Map
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if _, on := bad.Load("on"); on && op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "/data/t-0/") {
			return syscall.EIO
		}
		return nil
	})
	n := open(t, fsys, topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	q, err := n.Create("q", protocol.UUID{9}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Lead(0, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	bad.Store("on", true)
	wantCode(t, p.Sync(), kerr.KafkaStorageError)
	bad.Clear()
	wantCode(t, p.Sync(), kerr.KafkaStorageError)
	_, err = p.Append(spec{}.request(t))
	wantCode(t, err, kerr.KafkaStorageError)
	_, _, err = read(t, p, ReadRequest{})
	wantCode(t, err, kerr.KafkaStorageError)
	mustProduce(t, q, spec{})
	if got := strings.Count(n.logs.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d lines: %s", got, n.logs)
	}
}

// TestFailedSyncOfTheDirectoryIsFinal: what the fsync was for may be lost whatever a second one says, so nothing that needs one is promised any more. Partitions
// that are there go on.
func TestFailedSyncOfTheDirectoryIsFinal(t *testing.T) {
	var disk switched
	mem := vfs.NewMem()
	n := open(t, vfs.Inject(mem, disk.ask), topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	disk.set(func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir && op.Name == "/data" {
			return syscall.EIO
		}
		return nil
	})
	if err := n.checkpointPoints(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	disk.set(nil)
	mustProduce(t, p, spec{})
	if err := errors.Join(p.Sync(), n.checkpointPoints()); !errors.Is(err, syscall.EIO) {
		t.Errorf("the fsync was tried again: %v", err)
	}
	_, err := produce(t, n.leadAs("new", n.topic), spec{})
	wantCode(t, err, kerr.KafkaStorageError)
	if err := n.Close(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if p := open(t, mem, n.topic).Get("t", 0); p.Err() != nil || p.Offsets().End != 2 {
		t.Errorf("%v, %+v", p.Err(), p.Offsets())
	}
}

// TestFullDisk: appends are refused with one line, reads go on, and appends too when there is space again.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t))
	p := n.lead()
	m := newModel(t, 1, n)
	for range 20 {
		m.step()
	}
	disk.SetCapacity(1)
	for range 3 {
		_, err := produce(t, p, spec{})
		wantCode(t, err, kerr.KafkaStorageError)
	}
	if p.Err() != nil {
		t.Fatal(p.Err())
	}
	m.check(p)
	disk.SetCapacity(0)
	for range 20 {
		m.step()
	}
	if got := strings.Count(n.logs.String(), "level=ERROR"); got != 1 {
		t.Errorf("%d lines: %s", got, n.logs)
	}
	n.close()
	m.on(open(t, disk, n.topic))
	m.check(m.p)
}

// TestStartOnAFullDisk: a partition that can't be recovered for want of space is offline until there is some, and no longer.
func TestStartOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t, small(t)...))
	m := newModel(t, 2, n)
	for range 60 {
		m.step()
	}
	disk = disk.CrashClone(nil)
	disk.SetCapacity(1)
	n = open(t, disk, n.topic)
	wantCode(t, n.Get("t", 0).Err(), kerr.KafkaStorageError)
	for range 2 {
		p, err := n.Create("t", protocol.UUID{1}, 0, n.topic, start)
		if err != nil || !isCode(p.Err(), kerr.KafkaStorageError) {
			t.Fatal(err, p.Err())
		}
	}
	disk.SetCapacity(0)
	m.on(n)
	m.check(m.p)
	for range 20 {
		m.step()
	}
	n.close()
	m.on(open(t, disk, n.topic))
	m.check(m.p)
}

// TestAbortOnAFullDisk: the marker is in the log and the index of aborted transactions can't be written. Readers know the
// transaction all the same, and the file gets it later.
func TestAbortOnAFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	var full sync.Map
	fsys := vfs.Inject(disk, func(op vfs.Op) error {
		if _, on := full.Load("on"); on && strings.HasSuffix(op.Name, extTxnIndex) {
			return syscall.ENOSPC
		}
		return nil
	})
	n := open(t, fsys, topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{pid: 3, txn: true})
	full.Store("on", true)
	endTxn(t, p, 3, 0, false)
	want := []AbortedTxn{{3, 0}}
	if got := abortedFrom(t, p, 0); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if err := p.Sync(); err == nil || p.Err() != nil {
		t.Error("the recovery point may not move over it", err, p.Err())
	}
	full.Clear()
	n.close()
	p = open(t, disk, n.topic).lead()
	if got := abortedFrom(t, p, 0); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestPanicTakesThePartitionOffline, with its stack.
func TestPanicTakesThePartitionOffline(t *testing.T) {
	var broken sync.Map
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if _, on := broken.Load("on"); on && op.Kind == vfs.OpWrite {
			panic("broken")
		}
		return nil
	})
	n := open(t, fsys, topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	broken.Store("on", true)
	_, err := p.Append(spec{}.request(t))
	wantCode(t, err, kerr.KafkaStorageError)
	broken.Clear()
	_, err = p.Append(spec{}.request(t))
	wantCode(t, err, kerr.KafkaStorageError)
	if got := n.logs.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "panic: broken") || !strings.Contains(got, "append.go") {
		t.Error(got)
	}
}
