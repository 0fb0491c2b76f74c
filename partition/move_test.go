package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// fill appends batches of producers, with transactions that commit, abort, and one that stays open, over several segments.
func fill(t testing.TB, p *Partition) {
	t.Helper()
	for i := range int32(9) {
		mustProduce(t, p, spec{pid: 3, seq: i, txn: true})
		if i%2 == 1 {
			endTxn(t, p, 3, 0, i%4 == 1)
		}
		mustProduce(t, p, spec{pid: 4, seq: i, n: 1})
	}
}

// content is all that can be seen of a replica.
func content(t testing.TB, p *Partition) string {
	t.Helper()
	var b bytes.Buffer
	o := p.Offsets()
	for at := o.Start; at < o.End; {
		batches, res, err := read(t, p, ReadRequest{Offset: at, Isolation: ReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		for _, batch := range batches {
			fmt.Fprintf(&b, "%x\n", []byte(batch))
			at = batch.Header().LastOffset() + 1
		}
		fmt.Fprintf(&b, "aborted %v\n", res.Aborted)
		if len(batches) == 0 {
			break
		}
	}
	producers, err := p.Producers()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(producers, func(a, b ProducerState) int { return int(a.ProducerID - b.ProducerID) })
	fmt.Fprintf(&b, "start %d lso %d hw %d end %d producers %v", o.Start, o.LSO, o.HW, o.End, producers)
	return b.String()
}

func leadAgain(t testing.TB, p *Partition, epoch int32) {
	t.Helper()
	if err := p.Lead(epoch, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
}

// TestMove: what was seen before is seen afterwards, from the other directory, and after a restart.
func TestMove(t *testing.T) {
	disk := vfs.NewMem()
	d := mustOpenDirs(t, disk, "/a", "/b")
	p := d.leadIn(t, 0, "t", 0)
	fill(t, p)
	if _, err := p.DeleteRecords(5); err != nil {
		t.Fatal(err)
	}
	want, epoch := content(t, p), p.Offsets().LeaderEpoch
	for round, to := range []int{1, 0, 1} {
		moved, err := d.Move(t.Context(), p, d.IDs()[to], start)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Append(spec{}.request(t))
		wantCode(t, err, kerr.NotLeaderForPartition)
		if d.Get("t", 0) != moved || d.GetByID([16]byte{1}, 0) != moved || d.DirectoryOf(moved) != d.IDs()[to] {
			t.Fatalf("round %d: it is not there", round)
		}
		leadAgain(t, moved, epoch)
		if got := content(t, moved); got != want {
			t.Fatalf("round %d: moved\n%s\nbefore\n%s", round, got, want)
		}
		p = moved
	}
	// The producers' state came along.
	if a := mustProduce(t, p, spec{pid: 4, seq: 8, n: 1}); !a.Duplicate {
		t.Error("a duplicate was appended")
	}
	mustProduce(t, p, spec{pid: 4, seq: 9, n: 1})
	want = content(t, p)
	if same, err := d.Move(t.Context(), p, d.IDs()[1], start); err != nil || same != p {
		t.Errorf("moving it to where it is: %v", err)
	}
	if _, err := d.Move(t.Context(), p, [16]byte{7}, start); !isCode(err, kerr.KafkaStorageError) {
		t.Errorf("moving it nowhere: %v", err)
	}
	crashed := mustOpenDirs(t, disk.CrashClone(nil), "/a", "/b")
	if got := crashed.Get("t", 0); got == nil || got.Offsets().Start != 5 {
		t.Error("a crash loses the replica, or its start")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustOpenDirs(t, disk, "/a", "/b")
	p = again.Get("t", 0)
	leadAgain(t, p, epoch)
	if got := content(t, p); got != want || again.DirectoryOf(p) != again.IDs()[1] {
		t.Errorf("after a restart\n%s\nbefore\n%s", got, want)
	}
}

// TestMoveBesideAppends: appends go on until the copy takes over, and none is lost.
func TestMoveBesideAppends(t *testing.T) {
	var d *Dirs
	var p *Partition
	var once sync.Mutex
	acked := int64(0)
	seq := int32(0)
	busy := false
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		// While the first round copies, appends and retention change what it copies.
		if p == nil || op.Kind != vfs.OpWrite || !strings.Contains(op.Name, futureSuffix) || !once.TryLock() {
			return nil
		}
		defer once.Unlock()
		if busy || seq > 40 {
			return nil
		}
		busy = true
		defer func() { busy = false }()
		a, err := produce(t, p, spec{pid: 4, seq: seq, n: 1})
		if err != nil {
			return nil // it is being closed
		}
		seq++
		acked = a.LastOffset + 1
		if seq == 10 {
			_, _ = p.DeleteRecords(acked / 2)
		}
		return nil
	})
	d = mustOpenDirs(t, fsys, "/a", "/b")
	q := d.leadIn(t, 0, "t", 0)
	for i := range int32(5) {
		mustProduce(t, q, spec{pid: 3, seq: 4 * i, n: 4})
	}
	p = q
	moved, err := d.Move(t.Context(), q, d.IDs()[1], start)
	if err != nil {
		t.Fatal(err)
	}
	leadAgain(t, moved, q.Offsets().LeaderEpoch)
	if got := moved.Offsets().End; got < acked || seq == 0 {
		t.Errorf("the log ends at %d, %d was acknowledged", got, acked)
	}
	if a := mustProduce(t, moved, spec{pid: 4, seq: seq, n: 1}); a.BaseOffset < acked {
		t.Errorf("offset %d again", a.BaseOffset)
	}
}

// TestCreationBesideAMove finds the replica, also while it is in neither directory.
func TestCreationBesideAMove(t *testing.T) {
	disk := vfs.NewMem()
	var d *Dirs
	created := make(chan *Partition, 1)
	var during atomic.Bool
	fsys := vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && strings.Contains(op.Name, futureSuffix) && during.CompareAndSwap(true, false) {
			if d.Get("t", 0) != nil {
				t.Error("the replica is still there")
			}
			go func() {
				p, err := d.Create(d.IDs()[0], "t", protocol.UUID{1}, 0, topicConfig(t), start)
				if err != nil {
					t.Error(err)
				}
				created <- p
			}()
		}
		return nil
	})
	d = mustOpenDirs(t, fsys, "/a", "/b")
	p := d.leadIn(t, 0, "t", 0)
	fill(t, p)
	during.Store(true)
	moved, err := d.Move(t.Context(), p, d.IDs()[1], start)
	if err != nil {
		t.Fatal(err)
	}
	if got := <-created; got != moved || moved.Err() != nil {
		t.Errorf("another replica was made, the moved one is %v", moved.Err())
	}
}

// TestMoveIsGivenUp when it is asked to, or when the replica is deleted meanwhile: nothing is left of the copy.
func TestMoveIsGivenUp(t *testing.T) {
	disk := vfs.NewMem()
	ctx, cancel := context.WithCancel(t.Context())
	var during atomic.Pointer[func()]
	fsys := vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.Contains(op.Name, futureSuffix) {
			if do := during.Swap(nil); do != nil {
				(*do)()
			}
		}
		return nil
	})
	d := mustOpenDirs(t, fsys, "/a", "/b")
	p := d.leadIn(t, 0, "t", 0)
	fill(t, p)
	during.Store((*func())(&cancel))
	if moved, err := d.Move(ctx, p, d.IDs()[1], start); !errors.Is(err, context.Canceled) || moved != nil {
		t.Errorf("cancelled: %v", err)
	}
	mustProduce(t, p, spec{})
	remove := func() { _ = d.Delete("t", 0) }
	during.Store(&remove)
	if moved, err := d.Move(t.Context(), p, d.IDs()[1], start); !errors.Is(err, errGone) || moved != nil {
		t.Errorf("deleted: %v", err)
	}
	if got := names(t, disk, "/b"); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "t-") }) {
		t.Errorf("/b has %v", got)
	}
}

// TestMoveAndStorageErrors fails each operation of a move once: what was acknowledged is in the replica that is there afterwards.
func TestMoveAndStorageErrors(t *testing.T) {
	boom := errors.New("boom")
	for target := 1; ; target++ {
		count, on := 0, false
		var mu sync.Mutex
		var failed vfs.Op
		fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !on || op.Kind == vfs.OpClose {
				return nil
			}
			if count++; count == target {
				failed = op
				return boom
			}
			return nil
		})
		d := mustOpenDirs(t, fsys, "/a", "/b")
		p := d.leadIn(t, 0, "t", 0)
		fill(t, p)
		want, epoch := content(t, p), p.Offsets().LeaderEpoch
		mu.Lock()
		on = true
		mu.Unlock()
		moved, err := d.Move(t.Context(), p, d.IDs()[1], start)
		mu.Lock()
		on = false
		done := count < target
		mu.Unlock()
		now := d.Get("t", 0)
		if moved != nil && moved != now || moved == nil && now != p {
			t.Fatalf("%v: another replica is there than the move says: %v", failed, err)
		}
		if now.Err() == nil {
			leadAgain(t, now, epoch)
			if got := content(t, now); got != want {
				t.Fatalf("%v: %v: now\n%s\nbefore\n%s", failed, err, got, want)
			}
		} else if !errors.Is(now.Err(), boom) {
			t.Fatalf("%v: %v", failed, now.Err())
		}
		for _, s := range d.sets {
			s.Abandon()
		}
		if done {
			break
		}
	}
}

// TestMoveAndCrashes kills the process, or takes the power, before each change that a move makes: the replica is where it was, or where it went, with
// all that it had. Of two the metadata means the one where it was (the server looks).
func TestMoveAndCrashes(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 4))
		if seed == 0 {
			rng = nil // a kill
		}
		var crashes []*vfs.Mem
		var ops []vfs.Op
		var mu sync.Mutex
		on := false
		disk := vfs.NewMem()
		fsys := vfs.Inject(disk, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if on && op.Kind.Changes() {
				crashes, ops = append(crashes, disk.CrashClone(rng)), append(ops, op)
			}
			return nil
		})
		d := mustOpenDirs(t, fsys, "/a", "/b")
		p := d.leadIn(t, 0, "t", 0)
		fill(t, p)
		if _, err := p.DeleteRecords(5); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Sync(), d.sets[0].checkpointPoints(), d.sets[0].checkpointHighWatermarks()); err != nil {
			t.Fatal(err)
		}
		want, epoch := content(t, p), p.Offsets().LeaderEpoch
		mu.Lock()
		on = true
		mu.Unlock()
		if _, err := d.Move(t.Context(), p, d.IDs()[1], start); err != nil {
			t.Fatal(err)
		}
		for _, s := range d.sets {
			s.Abandon()
		}
		for i, crashed := range crashes {
			again := mustOpenDirs(t, crashed, "/a", "/b")
			r := again.Get("t", 0) // of two, that in /a
			if r == nil || r.Err() != nil {
				t.Fatalf("seed %d, before %s %s: it is gone", seed, ops[i].Kind, ops[i].Name)
			}
			leadAgain(t, r, epoch)
			if got := content(t, r); got != want {
				t.Fatalf("seed %d, before %s %s: in %s\n%s\nbefore\n%s", seed, ops[i].Kind, ops[i].Name, again.setOf(r).dir, got, want)
			}
			for _, s := range again.sets {
				s.Abandon()
			}
		}
		t.Log(len(crashes), "crashes")
	}
}
