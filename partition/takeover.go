package partition

import (
	"errors"
	"io/fs"
	"path/filepath"

	"oncelog/internal/vfs"
)

// A Holding is the sole use of a log directory by a tool, in a broker's place.
type Holding struct {
	claim *claim
	fsys  vfs.FS
	dir   string
}

// Hold claims the log directories of a node as a broker does: it makes those that aren't there. cluster is the cluster's id, "" that of the directories.
// Release what it gives.
func Hold(fsys vfs.FS, dirs []string, cluster string, nodeID int32) (map[string]*Holding, error) {
	failed, err := agree(fsys, dirs, cluster, nodeID)
	for _, reason := range failed {
		err = errors.Join(err, reason)
	}
	holdings := map[string]*Holding{}
	for _, dir := range dirs {
		if err != nil {
			break
		}
		var c *claim
		if c, err = claimDir(fsys, dir, nodeID); err == nil {
			holdings[dir] = &Holding{c, fsys, dir}
		}
	}
	if err != nil {
		for _, h := range holdings {
			err = errors.Join(err, h.Release())
		}
		return nil, err
	}
	return holdings, nil
}

// Release gives the directory back.
func (h *Holding) Release() error { return h.claim.release() }

// ClusterID is that of the directory.
func (h *Holding) ClusterID() string { return h.claim.ClusterID }

// DirectoryID is the directory's own id.
func (h *Holding) DirectoryID() [16]byte { return h.claim.DirectoryID }

// Arrival is what a log directory has to know of a partition whose directory comes into it from elsewhere.
type Arrival struct {
	Topic         string
	Index         int32
	RecoveryPoint int64 // 0: nothing of it is known to be durable
	LogStart      int64 // 0: the base of the first segment
	HighWatermark int64
	Cleaned       int64 // -1: not compacted
}

// Announce writes down what is known of partitions before they come. If they weren't left by a clean stop, neither was the directory from now on. It may
// be done again.
func (h *Holding) Announce(arrivals []Arrival, clean bool) error {
	if !clean {
		err := h.fsys.Remove(filepath.Join(h.dir, cleanShutdownFile))
		if err == nil {
			err = h.fsys.SyncDir(h.dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, checkpoint := range []struct {
		file  string
		entry func(a Arrival) (int64, bool)
	}{
		{logStartFile, func(a Arrival) (int64, bool) { return a.LogStart, a.LogStart > 0 }},
		{highWatermarkFile, func(a Arrival) (int64, bool) { return a.HighWatermark, true }},
		{cleanerFile, func(a Arrival) (int64, bool) { return a.Cleaned, a.Cleaned >= 0 }},
		{recoveryPointFile, func(a Arrival) (int64, bool) { return a.RecoveryPoint, true }},
	} {
		name := filepath.Join(h.dir, checkpoint.file)
		offsets, err := readOffsets(h.fsys, name)
		if err != nil {
			return err
		}
		for _, a := range arrivals {
			k := key{a.Topic, a.Index}
			if offset, ok := checkpoint.entry(a); ok {
				offsets[k] = offset
			} else {
				delete(offsets, k)
			}
		}
		if err := vfs.WriteFileAtomic(h.fsys, name, formatOffsets(offsets)); err != nil {
			return err
		}
	}
	return nil
}
