package partition

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// TestSyncWritesNothingIntoASuccessor: a sync that is on its way when its partition is deleted and made anew leaves the new
// one's files alone.
func TestSyncWritesNothingIntoASuccessor(t *testing.T) {
	var began atomic.Bool
	var meanwhile func()
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.Contains(filepath.Base(op.Name), leaderEpochFile) && meanwhile != nil && !began.Swap(true) {
			meanwhile()
		}
		return nil
	})
	n := open(t, fsys, topicConfig(t))
	old := n.lead()
	if err := old.Lead(7, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := produce(t, old, spec{n: 3}); err != nil {
		t.Fatal(err)
	}
	remade := make(chan *Partition, 1)
	meanwhile = func() {
		go func() {
			if err := n.Delete("t", 0); err != nil {
				t.Error(err)
			}
			p, err := n.Create("t", protocol.UUID{2}, 0, n.topic, n.now)
			if err == nil {
				err = p.Lead(0, []int32{1}, []int32{1})
			}
			if err == nil {
				_, err = produce(t, p, spec{n: 9})
			}
			if err == nil {
				err = p.Sync()
			}
			if err != nil {
				t.Error(err)
			}
			remade <- p
		}()
		select {
		case p := <-remade: // it did not wait for the sync
			remade <- p
		case <-time.After(50 * time.Millisecond):
		}
	}
	_ = old.Sync()
	p := <-remade
	got, err := readEpochs(fsys, p.dir)
	if err != nil || len(got) != 1 || got[0] != (epochStart{0, 0}) {
		t.Errorf("the new partition's leader epochs are %v, %v", got, err)
	}
}
