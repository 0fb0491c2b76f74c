package log

import (
	"testing"

	"oncelog/internal/vfs"
)

// What an append and a read at the end ask of the disk, in operations: that is what they cost, on any machine.
func TestCostInOperations(t *testing.T) {
	counts := map[vfs.Kind]int{}
	fsys := vfs.Inject(newMem(t), func(op vfs.Op) error {
		counts[op.Kind]++
		return nil
	})
	l, _ := mustOpen(t, fsys, Settings{IndexIntervalBytes: 4096}, Recovery{})
	for range 100 {
		mustAppend(t, l, makeBatch(t, l.End(), 3, 1000, 500))
	}
	clear(counts)
	mustAppend(t, l, makeBatch(t, l.End(), 3, 1000, 500))
	if len(counts) != 1 || counts[vfs.OpWrite] != 1 {
		t.Errorf("an append: %v, want one write", counts)
	}
	clear(counts)
	for _, from := range []int64{l.End() - 3, l.End() - 1} {
		s, err := l.Read(from, 1<<20, true, l.End())
		if err != nil || s.Len == 0 {
			t.Fatalf("%d bytes, %v", s.Len, err)
		}
		s.Release()
		if n, err := l.Distance(from, l.End()); n != int64(s.Len) || err != nil {
			t.Fatalf("distance %d, slice %d, %v", n, s.Len, err)
		}
	}
	if len(counts) != 0 {
		t.Errorf("finding the last batch: %v, want nothing", counts)
	}
	clear(counts)
	s, err := l.Read(7, 1<<20, true, l.End())
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	if len(counts) != 1 || counts[vfs.OpRead] != 1 {
		t.Errorf("finding a batch: %v, want one read", counts)
	}
}
