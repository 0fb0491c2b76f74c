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

// Hold claims a log directory as a broker does: it makes it if there is none. Release it.
func Hold(fsys vfs.FS, dir string, nodeID int32) (*Holding, error) {
	c, err := claimDir(fsys, dir, nodeID)
	if err != nil {
		return nil, err
	}
	return &Holding{c, fsys, dir}, nil
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
