package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"oncelog/internal/vfs"
)

// stagingPrefix begins the name of a copy that isn't whole yet. Brokers pass over names that begin with a dot.
const stagingPrefix = ".import-"

// place gets one directory to its place; if it is there already that has been done before.
func (m *importer) place(p *plannedPartition) error {
	to := p.to()
	there, err := exists(m.fsys, to)
	if err != nil || there {
		return err
	}
	if !m.journal.Copy {
		err := m.fsys.Rename(p.From, to)
		if errors.Is(err, syscall.EXDEV) {
			return fmt.Errorf("%s is on another file system, only a copy gets there (--copy): %w", to, err)
		}
		if err != nil {
			return err
		}
		return m.syncParents(p.From)
	}
	staged := filepath.Join(p.Dir, stagingPrefix+filepath.Base(to))
	if err := m.fsys.RemoveAll(staged); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.copyDir(p.From, staged); err != nil {
		return errors.Join(err, m.fsys.RemoveAll(staged))
	}
	return m.fsys.Rename(staged, to)
}

// syncParents makes the going of a directory durable where it was.
func (m *importer) syncParents(name string) error { return m.fsys.SyncDir(filepath.Dir(name)) }

func exists(fsys vfs.FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// copyDir copies the files of a partition, durably.
func (m *importer) copyDir(from, to string) error {
	entries, err := m.fsys.ReadDir(from)
	if err != nil {
		return err
	}
	if err := m.fsys.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue // no part of it
		}
		if err := m.copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return m.fsys.SyncDir(to)
}

func (m *importer) copyFile(from, to string) error {
	in, err := m.fsys.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := m.fsys.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// takeBack undoes what was brought, and removes the journal when all is as it was.
func (m *importer) takeBack() error {
	for _, t := range m.journal.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.From == p.to() {
				continue
			}
			there, err := exists(m.fsys, p.to())
			if err == nil && there {
				err = m.undo(p)
			}
			if err != nil {
				return fmt.Errorf("taking back %s: %w: import again to go on", p.to(), err)
			}
		}
	}
	return m.removeJournal()
}

func (m *importer) undo(p *plannedPartition) error {
	if m.journal.Copy {
		return m.fsys.RemoveAll(p.to())
	}
	if err := m.fsys.Rename(p.to(), p.From); err != nil {
		return err
	}
	return errors.Join(m.syncParents(p.From), m.fsys.SyncDir(p.Dir))
}
