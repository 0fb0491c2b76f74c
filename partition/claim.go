package partition

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"oncelog/internal/vfs"
)

// A claim is the sole use of a log directory by this process.
type claim struct {
	properties // of the directory
	lock       io.Closer
}

// claimDir makes the directory if there is none, locks it, and checks that it belongs to this node, or makes it so if it
// belongs to none.
func claimDir(fsys vfs.FS, dir string, nodeID int32) (*claim, error) {
	if err := makeDir(fsys, dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("log directory %s is in use: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	p, err := ensureProperties(fsys, dir, nodeID)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &claim{p, lock}, nil
}

func (c *claim) release() error { return c.lock.Close() }

// makeDir makes a directory that survives a power failure, with those that it lies in.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); !isNotExist(err) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}
