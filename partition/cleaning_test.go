package partition

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// TestLastOffsetStaysReachable: when all is superseded and the active segment is empty, a reader still comes to the high watermark.
func TestLastOffsetStaysReachable(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "600", "delete.retention.ms", "0"))
	p := n.lead()
	for range 20 {
		mustProduce(t, p, spec{keys: []string{"key"}})
	}
	_, err := p.Append(AppendRequest{Batch: tombstone(t, "key"), ExpectEpoch: -1, Now: start})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	err = p.rollLocked(start)
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if !n.clean(p, start.Add(time.Duration(i)*time.Second)) && i == 0 {
			t.Fatal("not dirty")
		}
		p.compaction.mu.Lock()
		p.compaction.mu.cleaned = 0 // all is dirty again
		p.compaction.mu.Unlock()
	}
	list, position := consume(t, p, ReadCommitted)
	if len(list) != 0 || position != 21 {
		t.Errorf("%v, position %d", list, position)
	}
	if p.Size() != protocol.BatchHeaderLen {
		t.Errorf("%d bytes", p.Size())
	}
}

func tombstone(t *testing.T, key string) protocol.Batch {
	t.Helper()
	b, err := protocol.AppendBatch(nil, protocol.BatchSpec{BaseTimestamp: start.UnixMilli(), ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]protocol.Record{{Key: []byte(key)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMarkersGoWithTheirProducers: when a producer is forgotten its markers go in the end, and no older snapshot makes the partition wait for them.
func TestMarkersGoWithTheirProducers(t *testing.T) {
	for _, commit := range []bool{true, false} {
		disk := vfs.NewMem()
		n := open(t, disk, topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "600", "delete.retention.ms", "0", "min.cleanable.dirty.ratio", "0"))
		p := n.lead()
		mustProduce(t, p, spec{keys: []string{"first"}})
		r := spec{pid: 5, txn: true, keys: []string{"key"}}
		if _, err := produce(t, p, r); err != nil {
			t.Fatal(err)
		}
		for i := range 12 { // a snapshot is written while the transaction is open, and its segment isn't merged with the one before
			if _, err := produce(t, p, spec{keys: []string{fmt.Sprint("other ", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		marker := endTxn(t, p, 5, 0, commit)
		for range 12 {
			mustProduce(t, p, spec{keys: []string{"key"}})
		}
		p.mu.Lock()
		p.mu.table.Expire(start.UnixMilli()+1, 1)
		p.mu.Unlock()
		for i := range 4 {
			n.clean(p, start.Add(time.Duration(i)*time.Second))
			p.compaction.mu.Lock()
			p.compaction.mu.cleaned = 0
			p.compaction.mu.Unlock()
		}
		for b, err := range p.Batches(0) {
			if err != nil || b.Header().BaseOffset == marker {
				t.Fatalf("the marker is still there: %+v, %v", b.Header(), err)
			}
		}
		n.close()
		if p.mu.snapshots[0] > marker {
			t.Fatalf("no snapshot below the marker: %v", p.mu.snapshots)
		}
		for _, offset := range p.mu.snapshots[1:] {
			if err := disk.Remove(p.path(offset, extSnapshot)); err != nil {
				t.Fatal(err)
			}
		}
		n = open(t, disk, n.topic)
		p = n.lead()
		if o := p.Offsets(); o.LSO != o.HW {
			t.Errorf("commit %v: the partition waits at %d for a marker that went; %+v", commit, o.LSO, o)
		}
		if _, err := p.Producers(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeleteEndsCleaning: a topic that is deleted, or a set that is closed, doesn't wait for its cleaning.
func TestDeleteEndsCleaning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cleanerNode(t, []string{"log.cleaner.io.max.bytes.per.second=10"})
		p := n.lead()
		for i := range 30 {
			put(t, p, "key", fmt.Sprint(i))
		}
		wait(20 * time.Second)
		if err := n.Delete("t", 0); err != nil {
			t.Fatal(err)
		}
		again, err := n.Create("t", protocol.UUID{2}, 0, n.topic, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Lead(0, []int32{1}, []int32{1}); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			put(t, again, "key", fmt.Sprint(i))
		}
		wait(time.Hour)
		for _, name := range names(t, n.fsys.(*vfs.Mem), "/data/t-0") {
			if strings.HasSuffix(name, ".cleaned") && n.cleanings() == 0 && again.Err() != nil {
				t.Error(name)
			}
		}
		begun := time.Now()
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > time.Second {
			t.Error("the stop waited for the cleaner")
		}
		if strings.Contains(n.logs.String(), "can't be cleaned") || strings.Contains(n.logs.String(), "offline") {
			t.Error(n.logs)
		}
	})
}

// TestSmallMapCleansInParts: when the keys of a single segment don't fit into the memory for them, each cleaning goes as far as they do, and the next one on
// from there, with nothing lost on the way.
func TestSmallMapCleansInParts(t *testing.T) {
	const keys, perBatch = 2*minMapKeys + minMapKeys/2, 50
	n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0"))
	n.SetBrokerConfig(brokerConfig(t, "log.cleaner.threads=0", "log.cleaner.dedupe.buffer.size=1"))
	p := n.lead()
	for i := 0; i < 2*keys; i += perBatch {
		s := spec{value: fmt.Sprint(i / keys)}
		for k := range perBatch {
			s.keys = append(s.keys, fmt.Sprint("key ", (i+k)%keys))
		}
		mustProduce(t, p, s)
	}
	p.mu.Lock()
	err := p.rollLocked(start)
	p.mu.Unlock()
	if err != nil || len(p.log.Segments()) != 2 {
		t.Fatal(p.log.Segments(), err)
	}
	rounds, before := 0, int64(0)
	for n.clean(p, start.Add(time.Second)) {
		rounds++
		list, position := consume(t, p, ReadCommitted)
		last := map[string]int64{}
		for _, r := range list {
			last[r.key] = r.offset
		}
		for k := range int64(keys) {
			if got := last[fmt.Sprint("key ", k)]; got != keys+k {
				t.Fatalf("round %d: the last record of key %d is at %d", rounds, k, got)
			}
		}
		cleaned := p.compaction.mu.cleaned
		if cleaned <= before || cleaned > before+minMapKeys || position != 2*keys {
			t.Fatalf("round %d: clean up to %d, %d before; read up to %d", rounds, cleaned, before, position)
		}
		if want := 2*keys - min(max(0, int(cleaned)-keys), keys); len(list) != want {
			t.Fatalf("round %d, clean up to %d: %d records, want %d", rounds, cleaned, len(list), want)
		}
		before = cleaned
	}
	if rounds != 2*keys/minMapKeys || before != 2*keys {
		t.Errorf("%d rounds, clean up to %d", rounds, before)
	}
}
