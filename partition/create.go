package partition

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/log"
)

// Create makes a replica, or gives the one that is there, having loaded it if a full disk kept it from being loaded before. A directory of the same name that belongs to another topic is put
// aside as a stray. The replica is ready at once; its files follow in the background, or with the first append, before whose
// write they are durable.
func (s *Set) Create(topic string, id [16]byte, index int32, cfg *config.Topic, now time.Time) (*Partition, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if p := s.Get(topic, index); p != nil {
		if p.id == id {
			if p.unloaded {
				return s.loadAgain(p, cfg, now), nil
			}
			return p, nil
		}
		if p.id.IsZero() {
			named, err := s.nameAgain(p, id, cfg, now)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
			}
			return named, nil
		}
		if err := s.putAside(p, straySuffix); err != nil {
			return nil, err
		}
	}
	if err := s.forgetPredecessor(key{topic, index}); err != nil {
		return nil, fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
	}
	p := s.newPartition(topic, id, index, cfg)
	p.log = log.New(s.shared.fsys, p.dir, log.Options{Files: s.shared.files, Settings: segmentSettings(cfg)}, 0, now)
	p.txns = openTxnIndex(s.shared.fsys, p.dir, nil)
	s.add(p)
	s.shared.making.add(p.make)
	return p, nil
}

// forgetPredecessor makes sure that no checkpoint tells of an earlier partition of that name: its offsets would be taken for
// those of the new one after a crash.
func (s *Set) forgetPredecessor(k key) error {
	return errors.Join(s.points.forget(k, s.writePoints), s.marks.forget(k, s.writeHighWatermarks), s.cleaned.forget(k, s.writeCleaned))
}

// checkpointsAreStale notes that the checkpoints tell of a partition that is no more.
func (s *Set) checkpointsAreStale(k key) {
	for _, c := range []*checkpointing{&s.points, &s.marks, &s.cleaned} {
		c.stale.add(k)
	}
}

// checkpointing is the writing of a checkpoint: one at a time, as what an older writing has seen must not come after a newer one.
type checkpointing struct {
	sync.Mutex
	stale keySet // partitions that were removed while the file tells of them
}

func (c *checkpointing) write(write func() error) error {
	c.Lock()
	defer c.Unlock()
	return c.writeLocked(write)
}

func (c *checkpointing) writeLocked(write func() error) error {
	stale := c.stale.take()
	err := write()
	if err != nil {
		c.stale.put(stale)
	}
	return err
}

// forget writes the checkpoint if it tells of a partition that was removed.
func (c *checkpointing) forget(k key, write func() error) error {
	c.Lock()
	defer c.Unlock()
	if !c.stale.has(k) {
		return nil
	}
	return c.writeLocked(write)
}

// keySet is the names of partitions that are gone while a checkpoint still tells of them.
type keySet struct {
	mu   sync.Mutex
	keys map[key]struct{}
}

func (x *keySet) add(k key) { x.put(map[key]struct{}{k: {}}) }

// put adds what take took.
func (x *keySet) put(keys map[key]struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys == nil {
		x.keys = keys
		return
	}
	maps.Copy(x.keys, keys)
}

func (x *keySet) has(k key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.keys[k]
	return ok
}

// take empties the set.
func (x *keySet) take() map[key]struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := x.keys
	x.keys = nil
	return keys
}

// make puts the partition's files down, unless it was removed meanwhile.
func (p *Partition) make() {
	var err error
	defer p.guard(&err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Err() != nil {
		return
	}
	if err := p.makeLocked(); err != nil {
		_ = p.storageErrorLocked(err) // a full disk: the first append tries again
	}
}

// makeLocked makes the directory, partition.metadata and the first segment, if that has not been done.
func (p *Partition) makeLocked() error {
	if p.mu.made {
		return nil
	}
	if err := p.clearWay(); err != nil {
		return err
	}
	if err := p.shared.fsys.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if err := writeMetadata(p.shared.fsys, p.dir, p.id); err != nil {
		return err
	}
	if err := p.log.Begin(); err != nil {
		return err
	}
	p.mu.made, p.mu.change = true, p.shared.parent.changed()
	return nil
}

// clearWay puts aside a directory of an earlier partition of the same name, whose removal went wrong: its records are not to be taken
// for those of this one.
func (p *Partition) clearWay() error {
	id, err := readMetadata(p.shared.fsys, p.dir)
	switch {
	case isNotExist(err), errors.Is(err, errMetadata), err == nil && id == p.id:
		return nil // what a creation left that was cut short has no records, or Begin refuses it
	case err != nil:
		return err
	}
	renamed := suffixedName(p.topic, p.index, straySuffix)
	if err := p.shared.fsys.Rename(p.dir, filepath.Join(filepath.Dir(p.dir), renamed)); err != nil {
		return err
	}
	p.shared.logger.Warn("directory of an earlier partition is put aside", "topic", p.topic, "partition", p.index, "dir", renamed)
	return nil
}

// settleLocked makes durable what must be before a partition's first append: its directory and partition.metadata.
func (p *Partition) settleLocked() error {
	if p.mu.durable {
		return nil
	}
	if err := p.makeLocked(); err != nil {
		return p.storageErrorLocked(err)
	}
	err := syncFile(p.shared.fsys, filepath.Join(p.dir, partitionMetadataFile))
	if err == nil {
		err = p.shared.fsys.SyncDir(p.dir)
	}
	if err == nil {
		err = p.shared.parent.sync(p.mu.change)
	}
	if err != nil {
		return p.fail(err)
	}
	p.mu.durable = true
	return nil
}

// dirSync shares the fsyncs of the directory that many partitions' directories are made in, and the checkpoints. Who changed something keeps the number of
// the change, and needs an fsync that began after it. After one that failed nothing in the directory becomes durable any more, until the next start.
type dirSync struct {
	fsys    vfs.FS
	dir     string
	changes atomic.Int64

	mu struct {
		sync.Mutex
		synced int64 // changes up to this one are durable
		err    error // of the fsync that failed: it is not tried again
	}
}

func (d *dirSync) changed() int64 { return d.changes.Add(1) }

// sync returns when a change is durable. One fsync does for all changes before it.
func (d *dirSync) sync(change int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.err != nil || d.mu.synced >= change {
		return d.mu.err
	}
	upTo := d.changes.Load()
	if d.mu.err = d.fsys.SyncDir(d.dir); d.mu.err == nil {
		d.mu.synced = upTo
	}
	return d.mu.err
}
