package partition

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// wounded is a log directory with a partition t-0 of several segments, which has everything: an idempotent producer, committed and aborted
// transactions, two leader epochs; and a good one beside.
type wounded struct {
	t       *testing.T
	disk    *vfs.Mem
	topic   func() *node // opens the directory
	batches []protocol.Batch
	aborted []AbortedTxn
	bases   []int64 // of the segments
	end     int64
}

func wound(t *testing.T, clean bool) *wounded {
	t.Helper()
	w := &wounded{t: t, disk: vfs.NewMem()}
	w.topic = func() *node { return open(t, w.disk, topicConfig(t, small(t)...)) }
	n := w.topic()
	other, err := n.Create("other", protocol.UUID{9}, 0, n.topic, start)
	if err == nil {
		err = other.Lead(0, []int32{1}, []int32{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	mustProduce(t, other, spec{})
	p := n.lead()
	seq := int32(0)
	for i := range int32(6) {
		mustProduce(t, p, spec{pid: 5, seq: i, value: strings.Repeat("v", 60)})
		for range 2 {
			mustProduce(t, p, spec{pid: 6, seq: seq, txn: true, n: 2, value: strings.Repeat("t", 50)})
			seq += 2
		}
		endTxn(t, p, 6, 0, i%2 == 0)
		if i == 2 {
			if err := p.Lead(4, []int32{1}, []int32{1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.batches, w.aborted = readAll(t, p)
	for _, s := range p.log.Segments() {
		w.bases = append(w.bases, s.Base)
	}
	w.end = p.log.End()
	if len(w.bases) < 4 || len(w.aborted) != 3 {
		t.Fatal(w.bases, w.aborted)
	}
	if clean {
		n.close()
	} else {
		n.Abandon()
	}
	return w
}

// readAll reads a partition to its end as a reader of committed records does.
func readAll(t *testing.T, p *Partition) (batches []protocol.Batch, aborted []AbortedTxn) {
	t.Helper()
	for from := p.Offsets().Start; from < p.Offsets().LSO; {
		more, res, err := read(t, p, ReadRequest{Offset: from, Isolation: ReadCommitted, CurrentLeaderEpoch: -1})
		if err != nil || len(more) == 0 {
			t.Fatal(from, err)
		}
		for _, b := range more {
			batches = append(batches, slices.Clone(b))
		}
		for _, a := range res.Aborted {
			if !slices.Contains(aborted, a) {
				aborted = append(aborted, a)
			}
		}
		from = more[len(more)-1].Header().LastOffset() + 1
	}
	return batches, aborted
}

// file is the path of a file of the i-th segment; negative numbers count from the end.
func (w *wounded) file(i int, ext string) string {
	if i < 0 {
		i += len(w.bases)
	}
	return "/data/t-0/" + log.FileName(w.bases[i], ext)
}

func (w *wounded) remove(names ...string) {
	for _, name := range names {
		if err := w.disk.Remove(name); err != nil {
			w.t.Fatal(name, err)
		}
	}
}

func (w *wounded) change(name string, change func([]byte) []byte) {
	overwrite(w.t, w.disk, name, change(readFile(w.t, w.disk, name)))
}

func (w *wounded) all(ext string) (list []string) {
	for _, name := range names(w.t, w.disk, "/data/t-0") {
		if strings.HasSuffix(name, ext) {
			list = append(list, "/data/t-0/"+name)
		}
	}
	return list
}

func flipAt(i int) func([]byte) []byte {
	return func(b []byte) []byte { b[i] ^= 0x40; return b }
}

func cutBy(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }

// middle is the middle of the first batch of a file: its records.
func middle(b []byte) []byte { b[90] ^= 0x40; return b }

// What becomes of a damage.
const (
	whole   = iota // everything is there
	cut            // the log ends earlier
	offline        // the partition is offline
)

// damages are what can happen to a directory, and what has to come of it. A row without says must not be told of at all.
var damages = []struct {
	name   string
	clean  bool // before the damage there was a clean stop, else a kill
	damage func(w *wounded)
	want   int
	says   string // in one line of the log
}{
	{"a flipped bit of a record, killed", false, func(w *wounded) { w.change(w.file(1, ".log"), middle) }, cut, "records="},
	{"a flipped bit of a record that was trusted", true, func(w *wounded) { w.change(w.file(1, ".log"), middle) }, whole, ""},
	{"a flipped bit of the last batch, killed", false, func(w *wounded) { w.change(w.file(-1, ".log"), func(b []byte) []byte { return flipAt(len(b) - 1)(b) }) },
		cut, "cut off the end of the log"},
	{"a wrong length, killed", false, func(w *wounded) { w.change(w.file(0, ".log"), flipAt(9)) }, cut, "records="},
	{"a wrong length, read", true, func(w *wounded) { w.change(w.file(1, ".log"), flipAt(9)) }, offline, "00000000000000000"},
	{"a torn tail, killed", false, func(w *wounded) { w.change(w.file(-1, ".log"), cutBy(7)) }, cut, "cut off the end of the log"},
	{"a torn tail after a clean stop", true, func(w *wounded) { w.change(w.file(-1, ".log"), cutBy(7)) }, offline, "remove /data/t-0/damage.txt"},
	{"zeros behind, killed", false, func(w *wounded) {
		w.change(w.file(-1, ".log"), func(b []byte) []byte { return append(b, make([]byte, 9000)...) })
	},
		whole, "cut off the end of the log"},
	{"zeros behind after a clean stop", true, func(w *wounded) {
		w.change(w.file(-1, ".log"), func(b []byte) []byte { return append(b, make([]byte, 9000)...) })
	},
		whole, "cut off the end of the log"},
	{"garbage behind, killed", false, func(w *wounded) {
		w.change(w.file(-1, ".log"), func(b []byte) []byte { return append(b, "garbage garbage garbage"...) })
	},
		whole, "cut off the end of the log"},
	{"a segment is missing, killed", false, func(w *wounded) { w.remove(w.file(1, ".log")) }, cut, "records="},
	{"a segment is missing", true, func(w *wounded) { w.remove(w.file(1, ".log")) }, offline, "is missing"},
	{"the first segment is missing", true, func(w *wounded) { w.remove(w.file(0, ".log")) }, offline, "is missing"},
	{"the last segment is missing", true, func(w *wounded) { w.remove(w.all(log.FileName(w.bases[len(w.bases)-1], ".log"))...) }, offline, "is missing"},
	{"all segments are missing", true, func(w *wounded) { w.remove(w.all(".log")...) }, offline, "is missing"},
	{"a segment is shorter", true, func(w *wounded) { w.change(w.file(1, ".log"), cutBy(100)) }, offline, "it had"},
	{"a foreign segment", true, func(w *wounded) {
		overwrite(w.t, w.disk, "/data/t-0/"+log.FileName(1000, ".log"), readFile(w.t, w.disk, w.file(0, ".log")))
	}, offline, "wasn't there"},

	{"an index is missing", true, func(w *wounded) { w.remove(w.file(1, ".index")) }, whole, "index is rebuilt"},
	{"all indexes are missing", true, func(w *wounded) { w.remove(append(w.all(".index"), w.all(".timeindex")...)...) }, whole, "index is rebuilt"},
	{"all indexes are missing, killed", false, func(w *wounded) { w.remove(append(w.all(".index"), w.all(".timeindex")...)...) }, whole, "recovered segments"},
	{"an index is shorter", true, func(w *wounded) { w.change(w.file(1, ".index"), cutBy(8)) }, whole, "index is rebuilt"},
	{"a time index is empty", true, func(w *wounded) { w.change(w.file(1, ".timeindex"), func([]byte) []byte { return nil }) }, whole, "index is rebuilt"},
	{"an index of zeros", true, func(w *wounded) { w.change(w.file(1, ".index"), func(b []byte) []byte { clear(b); return b }) }, whole, "index is rebuilt"},
	{"a wrong position in an index", true, func(w *wounded) { w.change(w.file(1, ".index"), flipAt(7)) }, whole, "index is rebuilt"},

	{"a transaction index is missing", true, func(w *wounded) { w.remove(w.all(".txnindex")[0]) }, whole, "transaction index is rebuilt"},
	{"all transaction indexes are missing", true, func(w *wounded) { w.remove(w.all(".txnindex")...) }, whole, "transaction index is rebuilt"},
	{"a transaction index is empty", true, func(w *wounded) { w.change(w.all(".txnindex")[0], func([]byte) []byte { return nil }) }, whole, "transaction index is rebuilt"},
	{"a transaction index is torn", true, func(w *wounded) { w.change(w.all(".txnindex")[0], cutBy(5)) }, whole, "transaction index is rebuilt"},
	{"a transaction index of zeros", true, func(w *wounded) { w.change(w.all(".txnindex")[1], func(b []byte) []byte { clear(b); return b }) }, whole, "transaction index is rebuilt"},
	{"a transaction index of garbage", true, func(w *wounded) {
		w.change(w.all(".txnindex")[0], func(b []byte) []byte { return []byte(strings.Repeat("x", len(b))) })
	},
		whole, "transaction index is rebuilt"},
	{"all transaction indexes are missing, killed", false, func(w *wounded) { w.remove(w.all(".txnindex")...) }, whole, "recovered segments"},

	{"a snapshot is damaged", true, func(w *wounded) { w.change(w.all(".snapshot")[len(w.all(".snapshot"))-1], flipAt(12)) }, whole, "producer snapshot is unusable"},
	{"all snapshots are missing", true, func(w *wounded) { w.remove(w.all(".snapshot")...) }, whole, ""},
	{"a window file is damaged", true, func(w *wounded) { w.change(w.all(".window")[len(w.all(".window"))-1], flipAt(20)) }, whole, "window file is unusable"},
	{"all window files are missing", true, func(w *wounded) { w.remove(w.all(".window")...) }, whole, ""},
	{"all snapshots are damaged, killed", false, func(w *wounded) {
		for _, name := range w.all(".snapshot") {
			w.change(name, flipAt(3))
		}
	}, whole, ""},

	{"the leader epochs are missing", true, func(w *wounded) { w.remove("/data/t-0/leader-epoch-checkpoint") }, whole, "leader epochs are rebuilt"},
	{"the leader epochs are damaged", true, func(w *wounded) { w.change("/data/t-0/leader-epoch-checkpoint", cutBy(4)) }, whole, "leader epochs are rebuilt"},
	{"the recovery points are damaged", true, func(w *wounded) { w.change("/data/"+recoveryPointFile, cutBy(4)) }, whole, "checkpoint is unusable"},
	{"the recovery points are missing, killed", false, func(w *wounded) { _ = w.disk.Remove("/data/" + recoveryPointFile) }, whole, "recovered segments"},
	{"the high watermarks are damaged", true, func(w *wounded) { overwrite(w.t, w.disk, "/data/"+highWatermarkFile, []byte("0\nx\n")) }, whole, "checkpoint is unusable"},
	{"the high watermarks are missing", true, func(w *wounded) { w.remove("/data/" + highWatermarkFile) }, whole, ""},
	{"what the stop left is damaged", true, func(w *wounded) { w.change("/data/"+segmentsFile, flipAt(20)) }, whole, "what the last stop left isn't known"},
	{"the marker of the stop is missing", true, func(w *wounded) { w.remove("/data/" + cleanShutdownFile) }, whole, "recovered segments"},
	{"partition.metadata is missing", true, func(w *wounded) { w.remove("/data/t-0/partition.metadata") }, whole, "written anew from the cluster's metadata"},
	{"partition.metadata is damaged", true, func(w *wounded) { w.change("/data/t-0/partition.metadata", cutBy(6)) }, whole, "written anew from the cluster's metadata"},

	{"foreign files", true, func(w *wounded) {
		for _, name := range []string{"/data/notes.txt", "/data/t-0/notes.txt", "/data/t-0/00000000000000000007.foreign", "/data/t-0/.log", "/data/t-0/" + log.FileName(3, ".log.cut")} {
			overwrite(w.t, w.disk, name, []byte("mine"))
		}
	}, whole, ""},
}

// TestDamage: what can be made again is, with a line about it; what can't takes the partition offline, with a line that says what and where.
// The other partition goes on, and nothing that isn't known is deleted.
func TestDamage(t *testing.T) {
	for _, tt := range damages {
		t.Run(tt.name, func(t *testing.T) {
			w := wound(t, tt.clean)
			tt.damage(w)
			before := w.foreign()
			n := w.topic()
			w.checkOther(n)
			p, err := n.Create("t", protocol.UUID{1}, 0, n.topic, start)
			if err != nil {
				t.Fatal(err)
			}
			if p.Err() == nil {
				if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
					t.Fatal(err)
				}
			}
			w.checkServed(p, tt.want)
			p.mendIndexes()
			if lines := n.logs.String(); tt.says != "" && !strings.Contains(lines, tt.says) || tt.says == "" && strings.Contains(lines, "level=WARN") {
				t.Errorf("said was\n%swant %q", lines, tt.says)
			}
			for _, name := range before {
				if string(readFile(t, w.disk, name)) != "mine" {
					t.Errorf("%s was changed", name)
				}
			}
			w.checkAgain(n, tt.want)
		})
	}
}

// foreign lists the files that aren't ours.
func (w *wounded) foreign() (list []string) {
	for _, dir := range []string{"/data", "/data/t-0"} {
		for _, name := range names(w.t, w.disk, dir) {
			if data, err := vfs.ReadFile(w.disk, dir+"/"+name, 100); err == nil && string(data) == "mine" {
				list = append(list, dir+"/"+name)
			}
		}
	}
	return list
}

func (w *wounded) checkOther(n *node) {
	w.t.Helper()
	other := n.Get("other", 0)
	if err := other.Lead(8, []int32{1}, []int32{1}); err != nil || other.Offsets().HW < 1 {
		w.t.Errorf("the other partition: %+v, %v", other.Offsets(), err)
	}
	mustProduce(w.t, other, spec{})
}

// checkServed reads what there is.
func (w *wounded) checkServed(p *Partition, want int) {
	w.t.Helper()
	if want == offline {
		for from := int64(0); from < w.end && p.Err() == nil; from++ { // some damage is found by the first reader
			_, _, _ = read(w.t, p, ReadRequest{Offset: from, CurrentLeaderEpoch: -1})
		}
		if err := p.Err(); !errors.Is(err, kerr.KafkaStorageError) {
			w.t.Errorf("it is not offline: %v, %+v", err, p.Offsets())
		}
		return
	}
	for from := int64(0); from < p.Offsets().HW; from++ {
		if _, _, err := read(w.t, p, ReadRequest{Offset: from, MaxBytes: 1, MinOne: true, CurrentLeaderEpoch: -1}); err != nil {
			w.t.Fatal(from, err)
		}
	}
	batches, aborted := readAll(w.t, p)
	if want == whole && (len(batches) != len(w.batches) || !reflect.DeepEqual(aborted, w.aborted)) || want == cut && len(batches) >= len(w.batches) {
		w.t.Errorf("%d of %d batches, aborted %v, want %v", len(batches), len(w.batches), aborted, w.aborted)
	}
	for i, b := range batches {
		if h, g := b.Header(), w.batches[i].Header(); h.BaseOffset != g.BaseOffset || h.LeaderEpoch != g.LeaderEpoch || h.CRC != g.CRC {
			w.t.Fatalf("batch %d is %+v, was %+v", i, h, g)
		}
	}
	if want == whole {
		if a, err := produce(w.t, p, spec{pid: 5, seq: 5, value: strings.Repeat("v", 60)}); err != nil || !a.Duplicate {
			w.t.Errorf("a retry of the last batch: %+v, %v", a, err)
		}
		for _, e := range []int32{0, 4} {
			if !slices.ContainsFunc(*p.epochs.Load(), func(s epochStart) bool { return s.epoch == e }) {
				w.t.Errorf("epochs %v", *p.epochs.Load())
			}
		}
	}
}

// checkAgain stops and starts: what was mended stays so, and what is lost is not forgotten before somebody has decided.
func (w *wounded) checkAgain(n *node, want int) {
	w.t.Helper()
	end := int64(-1)
	if p := n.Get("t", 0); p.Err() == nil {
		end = p.log.End()
	}
	_ = n.Close()
	held := slices.Contains(names(w.t, w.disk, "/data/t-0"), damageFile)
	n = w.topic()
	w.checkOther(n)
	p := n.Get("t", 0)
	if want != offline || !held {
		if want != offline && (p.Err() != nil || p.log.End() != end) {
			w.t.Errorf("after another start: %v", p.Err())
		}
		return
	}
	if err := p.Err(); err == nil || !strings.Contains(fmt.Sprint(err), damageFile) {
		w.t.Errorf("another start takes it for whole: %v", err)
	}
	_ = n.Close()
	w.remove("/data/t-0/" + damageFile)
	n = w.topic()
	if p := n.Get("t", 0); p.Err() != nil {
		w.t.Errorf("the loss was accepted, and it is offline: %v", p.Err())
	}
}
