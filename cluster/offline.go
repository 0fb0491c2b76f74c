package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// HasMetadata tells whether a metadata directory has been used by a controller.
func HasMetadata(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadImage gives the image that a metadata directory holds, whose controller isn't running, and changes nothing. Everything in raft's log
// counts as committed, which it is where this node votes alone.
func ReadImage(dir string) (im *Image, err error) {
	err = guarded(func() (err error) {
		im, err = readImage(dir)
		return err
	})
	return im, err
}

func readImage(dir string) (*Image, error) {
	db, err := bbolt.Open(filepath.Join(dir, storeFile), 0o644, &bbolt.Options{ReadOnly: true, Timeout: storeLockTimeout})
	if err != nil {
		return nil, fmt.Errorf("metadata in %s: %w", dir, err)
	}
	defer db.Close()
	board := newBoard()
	machine := &fsm{board: board}
	if err := restoreNewest(machine, filepath.Join(dir, "snapshots")); err != nil {
		return nil, fmt.Errorf("metadata in %s: %w", dir, err)
	}
	if err := db.View(func(tx *bbolt.Tx) error { return replayLog(machine, tx) }); err != nil {
		return nil, fmt.Errorf("metadata in %s: %w", dir, err)
	}
	return board.image.Load(), nil
}

// replayLog folds the entries of raft's log behind what the machine has.
func replayLog(machine *fsm, tx *bbolt.Tx) error {
	return eachEntry(tx, func(l *raft.Log) error {
		if int64(l.Index) <= machine.board.image.Load().Index || l.Type != raft.LogCommand {
			return nil
		}
		if err, ok := machine.Apply(l).(error); ok && !errors.Is(err, errStaleTerm) {
			return err
		}
		return nil
	})
}

// snapshotMeta is what raft's snapshot store says of a snapshot.
type snapshotMeta struct {
	Index, Term uint64
	Size        int64
	CRC         []byte
}

// restoreNewest gives the machine the newest snapshot, if there is one.
func restoreNewest(machine *fsm, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var newest snapshotMeta
	name := ""
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name(), "meta.json"))
		var m snapshotMeta
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", e.Name(), err)
		}
		if name == "" || m.Term > newest.Term || m.Term == newest.Term && m.Index > newest.Index {
			newest, name = m, e.Name()
		}
	}
	if name == "" {
		return nil
	}
	return restoreSnapshot(machine, filepath.Join(dir, name, "state.bin"), newest)
}

func restoreSnapshot(machine *fsm, name string, m snapshotMeta) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if !slices.Equal(sum.Sum(nil), m.CRC) {
		return fmt.Errorf("%s: checksum %x, should be %x: %w", name, sum.Sum(nil), m.CRC, errCorrupt)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return machine.Restore(struct {
		io.Reader
		io.Closer
	}{f, io.NopCloser(nil)})
}
