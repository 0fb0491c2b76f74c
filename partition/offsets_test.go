package partition

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func TestOffsetFor(t *testing.T) {
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecZstd} {
		n := open(t, vfs.NewMem(), topicConfig(t))
		p := n.lead()
		find := func(ts int64, i Isolation) FoundOffset {
			t.Helper()
			f, err := p.OffsetFor(ts, i, -1)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		none := FoundOffset{-1, -1, -1}
		for ts, want := range map[int64]FoundOffset{-1: {0, -1, 0}, -2: {0, -1, 0}, -3: none, -4: {0, -1, 0}, -5: none, -6: none, 5: none} {
			if got := find(ts, ReadUncommitted); got != want {
				t.Errorf("empty, %d: %+v, want %+v", ts, got, want)
			}
		}
		mustProduce(t, p, spec{times: []int64{100, 200, 150}, codec: codec})
		mustProduce(t, p, spec{times: []int64{300}, pid: 4, txn: true, codec: codec})
		for ts, want := range map[int64]FoundOffset{
			150: {1, 200, 0}, 100: {0, 100, 0}, 201: {3, 300, 0}, 301: none, -1: {4, -1, 0}, -2: {0, -1, 0}, -3: {3, 300, 0},
		} {
			if got := find(ts, ReadUncommitted); got != want {
				t.Errorf("%s, %d: %+v, want %+v", codec, ts, got, want)
			}
		}
		// The open transaction is invisible to read_committed.
		for ts, want := range map[int64]FoundOffset{201: none, -3: none, -1: {3, -1, 0}, 150: {1, 200, 0}} {
			if got := find(ts, ReadCommitted); got != want {
				t.Errorf("%s, committed, %d: %+v, want %+v", codec, ts, got, want)
			}
		}
		if got := find(-1, ReadLogEnd); got != (FoundOffset{4, -1, 0}) {
			t.Error(got)
		}
		_, err := p.OffsetFor(-7, ReadUncommitted, -1)
		wantCode(t, err, kerr.UnsupportedVersion)
		// A deleted record is still the one with the greatest timestamp.
		endTxn(t, p, 4, 0, true)
		if _, err := p.DeleteRecords(-1); err != nil {
			t.Fatal(err)
		}
		if got := find(100, ReadUncommitted); got != none {
			t.Errorf("a deleted record is found: %+v", got)
		}
		if got := find(-3, ReadUncommitted); got.Offset != 4 {
			t.Errorf("greatest timestamp: %+v", got)
		}
	}
}

func TestEpochChecks(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	if err := p.Lead(5, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[int32]*kerr.Error{5: nil, -1: nil, 4: kerr.FencedLeaderEpoch, 6: kerr.UnknownLeaderEpoch, -2: kerr.FencedLeaderEpoch} {
		_, found := p.OffsetFor(LatestTimestamp, ReadUncommitted, epoch)
		_, ended := p.EndOffsetForEpoch(epoch, 5)
		_, _, fetched := read(t, p, ReadRequest{CurrentLeaderEpoch: epoch})
		for what, err := range map[string]error{"ListOffsets": found, "OffsetForLeaderEpoch": ended, "Fetch": fetched} {
			want := want
			if epoch == -2 && what == "Fetch" {
				want = nil // only a fetch takes every negative epoch for none
			}
			if want == nil && err != nil || want != nil && !isCode(err, want) {
				t.Errorf("%s with epoch %d: %v", what, epoch, err)
			}
		}
	}
	p.Resign(5)
	_, _, err := read(t, p, ReadRequest{CurrentLeaderEpoch: 5})
	wantCode(t, err, kerr.NotLeaderForPartition)
	if _, _, err := read(t, p, ReadRequest{CurrentLeaderEpoch: 5, AnyReplica: true}); err != nil {
		t.Error(err)
	}
	_, err = p.EndOffsetForEpoch(-1, 5)
	wantCode(t, err, kerr.NotLeaderForPartition)
}

// TestUnsettledLeader: a new leader that doesn't know what is committed says so.
func TestUnsettledLeader(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{times: []int64{100}})
	if err := p.Lead(1, []int32{1, 2}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := produce(t, p, spec{times: []int64{200}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Lead(2, []int32{1, 2}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	_, err := p.OffsetFor(LatestTimestamp, ReadUncommitted, -1)
	wantCode(t, err, kerr.OffsetNotAvailable)
	_, err = p.OffsetFor(200, ReadUncommitted, -1)
	wantCode(t, err, kerr.OffsetNotAvailable)
	if f, err := p.OffsetFor(100, ReadUncommitted, -1); err != nil || f.Offset != 0 {
		t.Error(f, err)
	}
	if f, err := p.OffsetFor(LatestTimestamp, ReadLogEnd, -1); err != nil || f.Offset != 2 {
		t.Error(f, err)
	}
}

func TestRead(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	for i := range int32(3) {
		mustProduce(t, p, spec{n: 4, pid: 4, seq: i * 4})
	}
	size := len(stored(t, p, 0))
	for _, tt := range []struct {
		offset   int64
		max      int
		minOne   bool
		first, n int64 // base of the first batch, bytes
	}{
		{5, 1 << 20, false, 4, int64(2 * size)}, // from the batch that holds the offset
		{0, size, false, 0, int64(size)},
		{0, size - 1, false, 0, 0},
		{0, 1, true, 0, int64(size)}, // the first batch is whole
		{0, size + 5, true, 0, int64(size + 5)},
		{12, 1 << 20, true, 0, 0},
	} {
		res, err := p.Read(ReadRequest{Offset: tt.offset, MaxBytes: tt.max, MinOne: tt.minOne, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
		if err != nil || int64(res.Slice.Len) != tt.n {
			t.Errorf("%+v: %d bytes, %v", tt, res.Slice.Len, err)
		}
		if res.HW != 12 || res.LSO != 12 || res.LogStart != 0 || res.Aborted != nil {
			t.Errorf("%+v", res)
		}
		res.Slice.Release()
	}
	if p.Readable(4, ReadUncommitted) != int64(2*size) || p.Readable(12, ReadUncommitted) != 0 || p.Size() != int64(3*size) {
		t.Error("sizes", p.Readable(4, ReadUncommitted))
	}
	if _, err := p.DeleteRecords(6); err != nil {
		t.Fatal(err)
	}
	for _, offset := range []int64{-1, 5, 13} {
		_, _, err := read(t, p, ReadRequest{Offset: offset, CurrentLeaderEpoch: -1})
		wantCode(t, err, kerr.OffsetOutOfRange)
	}
	batches, res, err := read(t, p, ReadRequest{Offset: 6, CurrentLeaderEpoch: -1, Isolation: ReadCommitted})
	if err != nil || batches[0].Header().BaseOffset != 4 || res.Aborted == nil || res.LogStart != 6 {
		t.Error(res, err)
	}
}

// TestReadUpToTheHighWatermark: what isn't committed is read by replicas only.
func TestReadUpToTheHighWatermark(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	mustProduce(t, p, spec{})
	if err := p.Lead(1, []int32{1, 2}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := produce(t, p, spec{}); err != nil {
		t.Fatal(err)
	}
	for isolation, want := range map[Isolation]int{ReadUncommitted: 1, ReadCommitted: 1, ReadLogEnd: 2} {
		if batches, _, err := read(t, p, ReadRequest{CurrentLeaderEpoch: -1, Isolation: isolation}); err != nil || len(batches) != want {
			t.Errorf("isolation %d: %d batches, %v", isolation, len(batches), err)
		}
	}
	if batches, _, err := read(t, p, ReadRequest{Offset: 2, CurrentLeaderEpoch: -1}); err != nil || len(batches) != 0 {
		t.Error("between the high watermark and the end nothing is out of range", err)
	}
}

func TestDivergingEpoch(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	for range 10 {
		mustProduce(t, p, spec{})
	}
	if err := p.Lead(2, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, p, spec{})
	fetch := func(offset int64, epoch int32) (*EpochEnd, error) {
		res, err := p.Read(ReadRequest{Offset: offset, MaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: epoch})
		if err == nil {
			res.Slice.Release()
		}
		return res.Diverging, err
	}
	if d, err := fetch(12, 0); err != nil || d == nil || *d != (EpochEnd{0, 10}) {
		t.Error(d, err)
	}
	if d, err := fetch(10, 1); err != nil || d == nil || *d != (EpochEnd{0, 10}) {
		t.Error(d, err)
	}
	if d, err := fetch(5, 0); err != nil || d != nil {
		t.Error(d, err)
	}
	_, err := fetch(5, 3)
	wantCode(t, err, kerr.OffsetOutOfRange)
	if e, err := p.EndOffsetForEpoch(-1, 0); err != nil || e != (EpochEnd{0, 10}) {
		t.Error(e, err)
	}
}

func TestDeleteRecords(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	for range 10 {
		mustProduce(t, p, spec{})
	}
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]*kerr.Error{11: kerr.OffsetOutOfRange, -2: kerr.OffsetOutOfRange} {
		_, err := p.DeleteRecords(offset)
		wantCode(t, err, want)
	}
	for _, step := range []struct{ offset, low int64 }{{4, 4}, {2, 4}, {-1, 10}} {
		if low, err := p.DeleteRecords(step.offset); err != nil || low != step.low {
			t.Errorf("%d: %d, %v", step.offset, low, err)
		}
	}
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := string(readFile(t, n.fsys, "/data/t-0/leader-epoch-checkpoint")); got != "0\n1\n0 10\n" {
		t.Errorf("%q", got)
	}
	if err := n.checkpointPoints(); err != nil {
		t.Fatal(err)
	}
	if got := string(readFile(t, n.fsys, "/data/log-start-offset-checkpoint")); got != "0\n1\nt 0 10\n" {
		t.Errorf("%q", got)
	}
	p.setConfig(topicConfig(t, "cleanup.policy", "compact"))
	_, err := p.DeleteRecords(-1)
	wantCode(t, err, kerr.PolicyViolation)
}

// TestWindowBelowTheLogStart: a retry of a batch that was deleted is known after a kill, too, as long as the producer's window has it.
func TestWindowBelowTheLogStart(t *testing.T) {
	disk := vfs.NewMem()
	n := open(t, disk, topicConfig(t, append(small(t), "file.delete.delay.ms", "0")...))
	p := n.lead()
	seq := int32(0)
	for range 20 {
		mustProduce(t, p, spec{pid: 3, seq: seq})
		seq++
	}
	check := func(what string, n *node) {
		t.Helper()
		p := n.lead()
		for i := range int32(5) {
			if a, err := produce(t, p, spec{pid: 3, seq: seq - 1 - i}); err != nil || !a.Duplicate || a.BaseOffset != int64(seq-1-i) {
				t.Errorf("%s: the batch %d from the end: %+v, %v", what, i, a, err)
			}
		}
	}
	for _, deleted := range []int64{17, 20} {
		if _, err := p.DeleteRecords(deleted); err != nil {
			t.Fatal(err)
		}
		if err := n.checkpointPoints(); err != nil {
			t.Fatal(err)
		}
		check("killed", open(t, disk.CrashClone(nil), n.topic))
		if err := p.retain(start); err != nil {
			t.Fatal(err)
		}
		check("after retention", n)
		check("after retention, killed", open(t, disk.CrashClone(nil), n.topic))
	}
	n.close()
	check("stopped", open(t, disk, n.topic))
}
