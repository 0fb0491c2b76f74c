package partition

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// clean cleans a partition once, as the cleaner does when it finds it dirty enough. It reports whether it was.
func (n *node) clean(p *Partition, now time.Time) bool {
	n.t.Helper()
	d, _, err := p.inspectDirty(now)
	if err != nil {
		n.t.Fatal(err)
	}
	if !d.wanted(p.cfg.Load()) {
		return false
	}
	c := n.shared.cleaner
	end, err := c.cleanOnce(context.Background(), p, d, now)
	if err != nil {
		n.t.Fatal(err)
	}
	p.compaction.mu.Lock()
	p.compaction.mu.cleaned = end
	p.compaction.mu.Unlock()
	return true
}

// goldenBatch is a batch of expect.json.
type goldenBatch struct {
	BaseOffset int64
	Codec      string
	Records    []struct {
		Offset, Timestamp int64
		Key, Value        []byte
	}
	Size            int
	CRC             uint32
	ProducerID      int64
	ProducerEpoch   int16
	DeleteHorizonMs *int64
	MaxTimestamp    int64
}

type goldenCompacted struct {
	Partitions []struct {
		Topic               string
		LogEndOffset        int64
		AbortedTransactions []AbortedTxn
		Batches             []goldenBatch
		Segments            []struct {
			Base, LogSize int64
			TxnIndex      []struct{ ProducerID, FirstOffset, LastOffset, LastStableOffset int64 }
		}
	}
}

// goldenInput writes to p what was written to the topic before Kafka cleaned it. first is the timestamp of the first record, markers those of
// the markers in their order; epoch is what the two transactional producers began with, original the one compressed batch that no
// encoder of ours makes.
type goldenInput struct {
	t        *testing.T
	p        *Partition
	now      int64
	markers  []int64
	epochs   [2]int16
	zstd     []byte
	sequence [3]int32
}

func (g *goldenInput) put(pid int64, txn bool, codec protocol.Codec, pairs ...string) {
	g.t.Helper()
	spec := protocol.BatchSpec{Codec: codec, BaseTimestamp: g.now + 1, MaxTimestamp: -1, ProducerID: pid, ProducerEpoch: -1, BaseSequence: -1, Transactional: txn}
	if pid >= 0 {
		spec.ProducerEpoch = 0
		if txn {
			spec.ProducerEpoch = g.epochs[pid]
		}
		spec.BaseSequence = g.sequence[pid]
		g.sequence[pid] += int32(len(pairs) / 2)
	}
	var records []protocol.Record
	for i := 0; i < len(pairs); i += 2 {
		g.now++
		r := protocol.Record{TimestampDelta: g.now - spec.BaseTimestamp, Key: []byte(pairs[i]), Value: []byte(pairs[i+1])}
		if pairs[i+1] == "null" {
			r.Value = nil
		}
		records = append(records, r)
	}
	b, err := protocol.AppendBatch(nil, spec, records)
	if err != nil {
		g.t.Fatal(err)
	}
	if codec == protocol.CodecZstd {
		b = bytes.Clone(g.zstd)
		b.SetBase(0, -1)
	}
	g.append(b, txn)
}

func (g *goldenInput) append(b protocol.Batch, txn bool) {
	g.t.Helper()
	h := b.Header()
	r := AppendRequest{Batch: b, Acks: -1, ExpectEpoch: -1, Now: time.UnixMilli(h.MaxTimestamp)}
	if txn {
		guard, _, err := g.p.Verify(h.ProducerID, h.ProducerEpoch, h.BaseSequence, false, r.Now)
		if err != nil {
			g.t.Fatal(err)
		}
		r.Guard = guard
	}
	if _, err := g.p.Append(r); err != nil {
		g.t.Fatal(err)
	}
}

func (g *goldenInput) end(pid int64, commit bool) {
	g.t.Helper()
	g.epochs[pid]++ // transactions version 2
	g.sequence[pid] = 0
	_, err := g.p.WriteMarker(MarkerRequest{ProducerID: pid, Epoch: g.epochs[pid], Commit: commit, TransactionVersion: 2, ExpectEpoch: -1,
		Now: time.UnixMilli(g.markers[0])})
	if err != nil {
		g.t.Fatal(err)
	}
	g.markers = g.markers[1:]
}

func (g *goldenInput) write() {
	g.put(-1, false, 0, "a", "1", "b", "1", "c", "1", "d", "1")
	g.put(2, false, 0, "a", "2")
	g.put(-1, false, protocol.CodecGzip, "b", "2", "gone", "1", "e", "1")
	g.put(-1, false, 0, "gone", "null", "c", "2")
	g.put(0, true, 0, "a", "committed", "t", "1")
	g.end(0, true)
	g.put(1, true, 0, "a", "aborted", "aborted only", "1")
	g.end(1, false)
	g.put(1, true, 0, "b", "aborted too")
	g.put(0, true, 0, "d", "2", "never", "null")
	g.end(1, false)
	g.end(0, true)
	g.put(0, true, 0, "t", "2")
	g.end(0, true)
	g.put(2, false, 0, "idem", "overwritten")
	g.put(-1, false, protocol.CodecZstd, "idem", "by another", "e", "2", "f", "1")
	for i := range 12 {
		g.put(-1, false, 0, "filler", fmt.Sprint(i), fmt.Sprintf("k%d", i%4), fmt.Sprintf("value %d %s", i, bytes.Repeat([]byte("z"), 60)))
	}
}

// TestCleaningIsKafkas: what Apache Kafka 4.4 left of two topics, the second cleaned twice with its horizons over, is what we leave, in the bytes of all
// files; but for a batch that was compressed anew.
func TestCleaningIsKafkas(t *testing.T) {
	for _, tt := range []struct {
		topic          string
		first          int64
		markers        []int64
		epochs         [2]int16
		cleaned, again int64 // when
	}{
		{"compacted", 1796066520135, []int64{1796066581000, 1796066581229, 1796066581489, 1796066581625, 1796066581743}, [2]int16{}, 1796066584439, 0},
		{"twice", 1796066522644, []int64{1796066582671, 1796066582794, 1796066582921, 1796066582942, 1796066583066}, [2]int16{3, 2}, 1796066585367, 1796066588924},
	} {
		t.Run(tt.topic, func(t *testing.T) {
			golden := filepath.Join("../tests/golden/testdata/compacted/data", tt.topic+"-0")
			n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact", "internal.segment.bytes", "600", "index.interval.bytes", "100",
				"min.cleanable.dirty.ratio", "0.01", "message.timestamp.after.max.ms", "9223372036854775807", "delete.retention.ms", map[bool]string{false: "86400000", true: "1000"}[tt.again > 0]))
			p := n.lead()
			g := &goldenInput{t: t, p: p, now: tt.first, markers: tt.markers, epochs: tt.epochs, zstd: goldenZstd(t, golden)}
			g.write()
			if !n.clean(p, time.UnixMilli(tt.cleaned)) {
				t.Fatal("not dirty")
			}
			if tt.again > 0 {
				for i, ts := range []int64{8: 1796066588781, 9: 1796066588785, 10: 1796066588833, 11: 1796066588836} {
					g.now = max(ts, 1796066588700+int64(i)) - 1
					g.put(-1, false, 0, fmt.Sprintf("more%d", i%3), fmt.Sprintf("value %d %s", i, bytes.Repeat([]byte("z"), 90)))
				}
				if !n.clean(p, time.UnixMilli(tt.again)) {
					t.Fatal("not dirty")
				}
			}
			compareCompacted(t, p, golden, tt.topic)
			n.close()
			compareFiles(t, n.fsys, p.dir, golden)
		})
	}
}

// goldenZstd is the batch at 24 as Kafka stored it.
func goldenZstd(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, log.FileName(22, log.ExtLog)))
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		b, rest, err := protocol.SplitBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		if b.Header().BaseOffset == 24 {
			return b
		}
		data = rest
	}
	t.Fatal("no batch")
	return nil
}

// compareCompacted compares with what Kafka told.
func compareCompacted(t *testing.T, p *Partition, dir, topic string) {
	t.Helper()
	data, err := os.ReadFile("../tests/golden/testdata/compacted/expect.json")
	if err != nil {
		t.Fatal(err)
	}
	var e goldenCompacted
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	for _, want := range e.Partitions {
		if want.Topic != topic {
			continue
		}
		var got []protocol.Batch
		for b, err := range p.Batches(0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, bytes.Clone(b))
		}
		if len(got) != len(want.Batches) || p.Offsets().End != want.LogEndOffset {
			t.Fatalf("%d batches, want %d; end %d", len(got), len(want.Batches), p.Offsets().End)
		}
		for i, b := range got {
			compareBatch(t, b, want.Batches[i])
		}
		if a := abortedFrom(t, p, 0); fmt.Sprint(a) != fmt.Sprint(want.AbortedTransactions) {
			t.Errorf("aborted %v, want %v", a, want.AbortedTransactions)
		}
		for _, s := range want.Segments {
			checkTxnIndex(t, p, s.Base, s.TxnIndex)
		}
	}
}

func compareBatch(t *testing.T, b protocol.Batch, want goldenBatch) {
	t.Helper()
	h := b.Header()
	if h.BaseOffset != want.BaseOffset || h.Codec().String() != want.Codec || h.HasDeleteHorizon() != (want.DeleteHorizonMs != nil) ||
		h.HasDeleteHorizon() && h.BaseTimestamp != *want.DeleteHorizonMs || int(h.NumRecords) != len(want.Records) || h.MaxTimestamp != want.MaxTimestamp ||
		h.ProducerID != want.ProducerID || h.ProducerEpoch != want.ProducerEpoch {
		t.Errorf("%+v, want %+v", h, want)
	}
	if want.Codec != "gzip" && (h.CRC != want.CRC || len(b) != want.Size) {
		t.Errorf("%+v: CRC %d and %d bytes, want %d, %d", h, h.CRC, len(b), want.CRC, want.Size)
	}
	r := b.Records(1 << 20)
	defer r.Close()
	for i := 0; r.Next(); i++ {
		rec, w := r.Record(), want.Records[i]
		if h.BaseOffset+int64(rec.OffsetDelta) != w.Offset || h.Timestamp(rec.TimestampDelta) != w.Timestamp || !bytes.Equal(rec.Key, w.Key) || !bytes.Equal(rec.Value, w.Value) {
			t.Errorf("record %+v, want %+v", rec, w)
		}
	}
}

// compareFiles compares a directory with Kafka's: the same names, and but for what hangs on the length of a compressed batch the same bytes.
func compareFiles(t *testing.T, fsys vfs.FS, dir, golden string) {
	t.Helper()
	entries, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	ours := tree(t, fsys, dir)
	for _, e := range entries {
		want, err := os.ReadFile(filepath.Join(golden, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := ours[e.Name()]
		delete(ours, e.Name())
		if e.Name() == partitionMetadataFile {
			continue
		}
		if !ok {
			t.Errorf("%s is missing", e.Name())
			continue
		}
		offset, ext, _ := log.ParseFileName(e.Name())
		switch {
		case ext == extSnapshot:
			compareSnapshots(t, e.Name(), []byte(got), want)
		case offset == 0 && (ext == log.ExtLog || ext == log.ExtIndex):
		case got != string(want):
			t.Errorf("%s: %x, want %x", e.Name(), got, want)
		}
	}
	for name := range ours {
		if filepath.Ext(name) != extWindow {
			t.Errorf("%s is too many", name)
		}
	}
}
