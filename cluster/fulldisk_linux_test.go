package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kerr"
)

// smallDisk is a file system of its own, of a few MiB.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes all the room that is left; free gives it back.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.CreateTemp(dir, "filler-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

func bigEntry(index uint64) []*raft.Log {
	return []*raft.Log{{Index: index, Term: 3, Type: raft.LogCommand, Data: []byte(strings.Repeat("x", 1<<20))}}
}

// TestFullDiskGetsTheReserve: a write that finds the disk full gets through. Then there is no room until the reserve can be made again; a write that
// fails meanwhile costs nothing.
func TestFullDiskGetsTheReserve(t *testing.T) {
	disk := smallDisk(t, 32)
	name := filepath.Join(disk, "a.db")
	s := mustStore(t, name, true)
	if st, err := os.Stat(filepath.Join(disk, reserveFile)); err != nil || st.Size() != reserveBytes || s.room() != nil {
		t.Fatal(st, err)
	}
	last := uint64(0)
	store := func() error {
		err := s.StoreLogs(bigEntry(last + 1))
		if err == nil {
			last++
		}
		return err
	}
	if err := store(); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, disk)
	for s.reserve.held { // the file may have some pages left
		if err := store(); err != nil {
			t.Fatal(err)
		}
	}
	freeToo := fillDisk(t, disk)
	if err := s.room(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("there is room: %v", err)
	}
	err := store()
	for err == nil {
		err = store()
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	free()
	freeToo()
	if err := s.room(); err != nil {
		t.Error(err)
	}
	if err := store(); err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = mustStore(t, name, true)
	defer s.close()
	if got := bounds(t, s); got != fmt.Sprint("1-", last) {
		t.Errorf("%s, want 1-%d", got, last)
	}
}

// TestStableValuesWaitForRoom: with other voters a value that could not be written would be the end of raft.
func TestStableValuesWaitForRoom(t *testing.T) {
	disk := smallDisk(t, 16)
	s := mustStore(t, filepath.Join(disk, "a.db"), false)
	value := []byte(strings.Repeat("v", 3<<20))
	s.mu.Lock()
	s.reserve.give()
	s.mu.Unlock()
	free := fillDisk(t, disk)
	done := make(chan error, 1)
	go func() { done <- s.Set([]byte("vote"), value) }()
	select {
	case err := <-done:
		t.Fatal("set on a full disk: ", err)
	case <-time.After(roomPause / 4):
	}
	if _, err := s.LastIndex(); err != nil { // nobody else is kept
		t.Error(err)
	}
	free()
	if err := <-done; err != nil || string(onDisk(t, s, "vote")) != string(value) {
		t.Error(err)
	}
	s.mu.Lock()
	s.reserve.give()
	s.mu.Unlock()
	fillDisk(t, disk)
	go func() { done <- s.Set([]byte("term"), value) }()
	time.AfterFunc(roomPause/4, func() { done <- s.close() })
	if err := errors.Join(<-done, <-done); err == nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("closed while it waited: %v", err)
	}
}

// TestFullDiskKeepsTheOffice: raft sees nothing of a full disk, requests are refused in a way that clients try again, and what was acknowledged stays.
func TestFullDiskKeepsTheOffice(t *testing.T) {
	disk := smallDisk(t, 24)
	dir := filepath.Join(disk, "raft")
	c := mustOpen(t, Options{Dir: dir})
	mustRegister(t, c, 1)
	term := c.voter.raft.CurrentTerm()
	free := fillDisk(t, disk)
	made := 0
	create := func() error {
		err := kerr.ErrorForCode(createCodes(c, t.Context(), fmt.Sprint("topic-", made))[0])
		if err == nil {
			made++
		}
		return err
	}
	var frees []func()
	for refused := 0; refused < 20; {
		switch err := create(); {
		case errors.Is(err, kerr.KafkaStorageError):
			refused++
		case err != nil:
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, reserveFile)); err != nil && len(frees) == 0 {
			frees = append(frees, fillDisk(t, disk)) // others are quick to take what the reserve left
		}
	}
	if c.voter.raft.State() != raft.Leader || c.voter.raft.CurrentTerm() != term || made == 0 {
		t.Errorf("%v in term %d, was %d; %d topics", c.voter.raft.State(), c.voter.raft.CurrentTerm(), term, made)
	}
	if c.Image().NumTopics() != made {
		t.Errorf("%d topics, %d were made", c.Image().NumTopics(), made)
	}
	for _, f := range append(frees, free) {
		f()
	}
	for range 3 {
		if err := create(); err != nil {
			t.Error(err)
		}
	}
	mustClose(t, c)
	c = mustOpen(t, Options{Dir: dir})
	defer mustClose(t, c)
	if c.Image().NumTopics() != made {
		t.Errorf("%d topics after a restart, %d were made", c.Image().NumTopics(), made)
	}
}
