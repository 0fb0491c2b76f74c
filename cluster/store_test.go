package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

func mustStore(t *testing.T, name string, lone bool) *store {
	t.Helper()
	s, err := openStore(name, lone, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entries(from, to uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 3, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry %d", i), AppendedAt: time.Unix(1, 5)})
	}
	return logs
}

func bounds(t *testing.T, s *store) string {
	t.Helper()
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(first, "-", last)
}

// TestStoreKeepsLog: what was stored is there after a restart, and what was deleted is not.
func TestStoreKeepsLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.db")
	s := mustStore(t, name, true)
	if got := bounds(t, s); got != "0-0" {
		t.Error("empty store has", got)
	}
	if err := s.GetLog(1, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Error(err)
	}
	if err := s.StoreLogs(entries(1, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(9, 20); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := bounds(t, s); got != "4-8" {
			t.Fatal("store has", got)
		}
		var l raft.Log
		if err := s.GetLog(5, &l); err != nil {
			t.Fatal(err)
		}
		if want := entries(5, 5)[0]; l.Index != 5 || l.Term != 3 || l.Type != want.Type || !bytes.Equal(l.Data, want.Data) || !l.AppendedAt.Equal(want.AppendedAt) {
			t.Errorf("entry is %+v", l)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s = mustStore(t, name, true)
	}
	if err := s.DeleteRange(1, 100); err != nil || bounds(t, s) != "0-0" {
		t.Error(err, bounds(t, s))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// TestStableValuesRideWithEntries: a lone voter's stable values cost no transaction of their own; with others they are on disk at once.
func TestStableValuesRideWithEntries(t *testing.T) {
	for _, lone := range []bool{true, false} {
		name := filepath.Join(t.TempDir(), "a.db")
		s := mustStore(t, name, lone)
		if _, err := s.GetUint64([]byte("term")); err == nil || err.Error() != "not found" {
			t.Fatal(err)
		}
		written := func() string { return string(onDisk(t, s, "term")) }
		if err := s.SetUint64([]byte("term"), 1<<40|'a'); err != nil {
			t.Fatal(err)
		}
		if v, err := s.GetUint64([]byte("term")); err != nil || v != 1<<40|'a' {
			t.Fatal(v, err)
		}
		if (written() == "") != lone {
			t.Errorf("lone %v: on disk is %q", lone, written())
		}
		if err := s.StoreLogs(entries(1, 1)); err != nil {
			t.Fatal(err)
		}
		if written() == "" {
			t.Error("value is not on disk after an entry was stored")
		}
		if err := s.Set([]byte("vote"), []byte("1")); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s = mustStore(t, name, lone)
		if v, err := s.Get([]byte("vote")); err != nil || string(v) != "1" {
			t.Error(v, err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func onDisk(t *testing.T, s *store, key string) (value []byte) {
	t.Helper()
	err := s.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(bucketStable); b != nil {
			value = bytes.Clone(b.Get([]byte(key)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestStoreErrors: after a full disk the store goes on; after anything else it takes no more.
func TestStoreErrors(t *testing.T) {
	s := mustStore(t, filepath.Join(t.TempDir(), "a.db"), true)
	defer s.close()
	fail := func(err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.updateLocked(func(*bbolt.Tx) error { return err })
	}
	if err := s.Set([]byte("term"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := fail(syscall.ENOSPC); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := s.StoreLogs(entries(1, 1)); err != nil {
		t.Errorf("after a full disk: %v", err)
	}
	if string(onDisk(t, s, "term")) != "1" {
		t.Error("stable value was lost with the failed transaction")
	}
	if err := fail(syscall.EIO); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := s.StoreLogs(entries(2, 2)); !errors.Is(err, syscall.EIO) || bounds(t, s) != "1-1" {
		t.Errorf("after a broken disk: %v, %s", err, bounds(t, s))
	}
}

// TestBrokenStoreIsTold: the controller's owner learns that nothing can be written any more. A full disk is none of that.
func TestBrokenStoreIsTold(t *testing.T) {
	var s *store
	told := make(chan error, 1)
	c := mustOpen(t, Options{Dir: t.TempDir(), Failed: func(err error) { told <- err }, Stores: func(dir string, l *slog.Logger) (Stores, error) {
		stores, err := openStores(dir, l)
		s = stores.Log.(*store)
		return stores, err
	}})
	mustRegister(t, c, 1)
	fail := func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.updateLocked(func(*bbolt.Tx) error { return err })
	}
	fail(syscall.ENOSPC)
	if code := createCodes(c, t.Context(), "a")[0]; code != 0 {
		t.Error(code)
	}
	fail(syscall.EIO)
	if code := createCodes(c, t.Context(), "b")[0]; code == 0 {
		t.Error("made on a broken disk")
	}
	if err := <-told; !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if err := c.Close(); err != nil && !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}

// TestDamagedStoreIsAnError: a flipped bit anywhere in the file costs nothing, or is an error that says what it is; nobody gets other metadata.
// In one of the two pages at the front it is taken for a transaction that a loss of power has torn, as it can't be told from one.
func TestDamagedStoreIsAnError(t *testing.T) {
	dir := t.TempDir()
	c := mustOpen(t, Options{Dir: dir})
	mustRegister(t, c, 1)
	for i := range 20 {
		if code := createCodes(c, t.Context(), fmt.Sprint("topic-", i))[0]; code != 0 {
			t.Fatal(code)
		}
	}
	want := describe(c.Image())
	mustClose(t, c)
	name := filepath.Join(dir, storeFile)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	refused := 0
	for at := 2 * os.Getpagesize(); at < len(good); at += 5 {
		if good[at] == 0 && at%64 != 0 { // most of the file is empty
			continue
		}
		if _, err := f.WriteAt([]byte{good[at] ^ 1<<(at%8)}, int64(at)); err != nil {
			t.Fatal(err)
		}
		im, err := ReadImage(dir)
		if err != nil {
			refused++
		} else if im.ControllerID = 1; describe(im) != want {
			t.Fatalf("byte %d: other metadata\n%s", at, describe(im))
		}
		if errCheck := checkStore(name); err != nil && errors.Is(err, errCorrupt) && errCheck == nil {
			t.Errorf("byte %d: %v, and it would be opened", at, err)
		}
		if _, err := f.WriteAt(good[at:at+1], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if refused < 100 {
		t.Errorf("only %d refused", refused)
	}
}

// TestStoreIsLocked: a second process on the same directory is refused.
func TestStoreIsLocked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.db")
	s := mustStore(t, name, true)
	defer s.close()
	if other, err := openStore(name, true, slog.New(slog.DiscardHandler)); err == nil {
		other.close()
		t.Error("opened twice")
	}
}

func FuzzLog(f *testing.F) {
	f.Add(encodeLog(&raft.Log{Term: 3, Type: raft.LogCommand, Data: []byte("x"), Extensions: []byte("y"), AppendedAt: time.Unix(1, 1)}))
	f.Add([]byte{logEntryVersion, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var l raft.Log
		if decodeLog(data, 1, &l) != nil {
			return
		}
		var again raft.Log
		if err := decodeLog(encodeLog(&l), 1, &again); err != nil || again.Term != l.Term || !bytes.Equal(again.Data, l.Data) || !bytes.Equal(again.Extensions, l.Extensions) {
			t.Fatal(err, l, again)
		}
	})
}
