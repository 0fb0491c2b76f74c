package log

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"oncelog/internal/vfs"
)

// TestNewTouchesNothing: a log that New made needs no directory and no file before its first append, whatever it is asked.
func TestNewTouchesNothing(t *testing.T) {
	touched := func(op vfs.Op) error { return fmt.Errorf("%s of %s", op.Kind, op.Name) }
	l := New(vfs.Inject(vfs.NewMem(), touched), "/p", Options{}, 5, clock)
	if l.Start() != 5 || l.End() != 5 || l.Durable() != 5 || l.RecoveryPoint() != 5 || l.Size() != 0 || bases(l) != "[5]" {
		t.Errorf("[%d, %d)", l.Start(), l.End())
	}
	s, err := l.Read(5, 1000, true, 5)
	s.Release()
	_, ok, err2 := l.OffsetAt(0)
	_, ok2, err3 := l.MaxTimestamp()
	_, err4 := l.TruncateTo(5, clock)
	_, rolled, err5 := l.Roll(clock)
	_, err6 := l.RemoveBefore(5)
	if err := errors.Join(err, err2, err3, err4, err5, err6, l.TrimTo(5), l.Sync(5), l.Quiesce()); err != nil || ok || ok2 || rolled {
		t.Error(err, ok, ok2, rolled)
	}
	if got := collect(t, l, 5); len(got) != 0 {
		t.Error(got)
	}
	if _, err := l.ResetTo(8, clock); err != nil || l.Start() != 8 || l.End() != 8 || bases(l) != "[8]" {
		t.Error(err, l.Start(), l.End())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestNewBegins: Begin or the first append creates the .log; an error of that leaves the log as it was.
func TestNewBegins(t *testing.T) {
	m := newMem(t)
	full := true
	disk := vfs.Inject(m, func(op vfs.Op) error {
		if full && op.Kind == vfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	for _, begin := range []func(*Log) error{
		(*Log).Begin,
		func(l *Log) error { return errOf(l.Append(makeBatch(t, 0, 1, 0, 80), clock)) },
	} {
		if err := m.MkdirAll("/p", 0o755); err != nil {
			t.Fatal(err)
		}
		full = true
		l := New(disk, "/p", Options{}, 0, clock)
		if err := begin(l); !errors.Is(err, syscall.ENOSPC) || l.Failed() != nil {
			t.Error(err)
		}
		full = false
		if err := begin(l); err != nil {
			t.Error(err)
		}
		if err := l.Begin(); err != nil || fmt.Sprint(list(t, m)) != "[00000000000000000000.log]" {
			t.Error(err, list(t, m))
		}
		mustAppend(t, l, makeBatch(t, l.End(), 1, 0, 80))
		end := l.End()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, _ := mustOpen(t, m, Settings{}, Recovery{Clean: true})
		if again.End() != end {
			t.Error(again.End())
		}
		again.Abandon()
		if err := m.RemoveAll("/p"); err != nil {
			t.Fatal(err)
		}
	}
}
