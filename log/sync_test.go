package log

import "testing"

// TestFlushLeavesTheRecoveryPoint: what Flush makes durable counts as such, and the next Sync moves the recovery point over it,
// whether the segment is still the last one then or not.
func TestFlushLeavesTheRecoveryPoint(t *testing.T) {
	for _, roll := range []bool{false, true} {
		l, _ := mustOpen(t, newMem(t), Settings{IndexIntervalBytes: 1000}, Recovery{})
		mustAppend(t, l, makeBatch(t, 0, 1, 1000, 200))
		mustAppend(t, l, makeBatch(t, 1, 1, 1000, 200))
		for range 2 {
			if err := l.Flush(2); err != nil || l.Durable() != 2 || l.RecoveryPoint() != 0 {
				t.Fatalf("%v; durable %d, recovery point %d", err, l.Durable(), l.RecoveryPoint())
			}
		}
		want := int64(1)
		if roll {
			if _, _, err := l.Roll(clock); err != nil {
				t.Fatal(err)
			}
			want = 2
		}
		if err := l.Sync(2); err != nil || l.Durable() != 2 || l.RecoveryPoint() != want {
			t.Errorf("%v; durable %d, recovery point %d, want %d", err, l.Durable(), l.RecoveryPoint(), want)
		}
	}
}
