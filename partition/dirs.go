package partition

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// Dirs is the replicas of a node, in one or several log directories. A directory that cannot be used does not keep the others from being used: one
// that cannot be opened is left out, and one that fails takes all its replicas offline until the next start. When none is left the node has to stop.
type Dirs struct {
	dirs   []*directory // as configured; immutable
	sets   []*Set       // of those that could be opened; immutable
	failed func(left [][16]byte)
	logger *slog.Logger

	open   chan struct{}  // closed once all are open, or given up
	probes sync.WaitGroup // of directories that may have failed

	// placing is held to create and remove replicas, and alone while one changes its directory: for that moment it is in none. Before all
	// other locks.
	placing sync.RWMutex

	mu      sync.Mutex // after all locks of a partition
	closing bool       // guarded by mu
	moving  map[*move]bool
}

type directory struct {
	path    string
	set     *Set                  // nil if the directory could not be opened; immutable once all are open
	err     atomic.Pointer[error] // why it cannot be used
	probing bool                  // guarded by the Dirs' mu
}

func (dir *directory) fail(err error) { dir.err.Store(&err) }

// failure is why the directory cannot be used, nil if it can.
func (dir *directory) failure() error {
	if err := dir.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Directory is a log directory as others see it.
type Directory struct {
	Path string   // absolute
	ID   [16]byte // zero if it cannot be used
	Err  error    // why it cannot be used
}

// OpenDirs opens the log directories of a node, at once; Options.Dir is not looked at. Options.RaftDir is the name of a folder that is no
// partition in the first of them. An error of storage takes a directory out of use, if there is another that can be used. What an operator has to
// put right stops the start: a directory of another node or cluster, one that is in use, one that holds what is no partition.
func OpenDirs(o Options, paths []string, now time.Time) (*Dirs, error) {
	d := &Dirs{open: make(chan struct{}), moving: map[*move]bool{}, failed: o.DirectoryFailed, logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	for _, path := range paths {
		d.dirs = append(d.dirs, &directory{path: path})
	}
	if len(paths) > 1 || o.ClusterID != "" {
		failed, err := agree(o.FS, paths, o.ClusterID, o.NodeID)
		if err != nil {
			return nil, err
		}
		for _, dir := range d.dirs {
			if err := failed[dir.path]; err != nil {
				dir.fail(err)
			}
		}
	}
	var opening sync.WaitGroup
	for i, dir := range d.dirs {
		if dir.failure() == nil {
			opening.Go(func() { d.openOne(dir, o, i == 0, now) })
		}
	}
	opening.Wait()
	if err := d.take(); err != nil {
		close(d.open)
		d.endProbes()
		for _, s := range d.sets {
			s.Abandon()
		}
		return nil, err
	}
	close(d.open)
	return d, nil
}

// agree has all log directories belong to one cluster: new ones to that of the others, or to the one that is given. Directories that could not be used
// are failed.
func agree(fsys vfs.FS, paths []string, cluster string, nodeID int32) (failed map[string]error, err error) {
	failed = map[string]error{}
	var fresh []string
	for _, path := range paths {
		p, err := ReadProperties(fsys, path)
		switch {
		case isNotExist(err):
			fresh = append(fresh, path)
		case err != nil && isStorageError(err):
			failed[path] = err
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case cluster != "" && cluster != p.ClusterID:
			return nil, fmt.Errorf("%s: cluster.id is %s, all else is of cluster %s: %w", path, p.ClusterID, cluster, errProperties)
		default:
			cluster = p.ClusterID
		}
	}
	if cluster == "" {
		cluster = protocol.NewUUID().String()
	}
	for _, path := range fresh {
		p := properties{ClusterID: cluster, NodeID: nodeID, DirectoryID: protocol.NewUUID()}
		err := makeDir(fsys, path)
		if err == nil {
			err = vfs.WriteFileAtomic(fsys, filepath.Join(path, metaPropertiesFile), p.format())
		}
		if err != nil {
			failed[path] = err
		}
	}
	return failed, nil
}

func (d *Dirs) openOne(dir *directory, o Options, first bool, now time.Time) {
	o.Dir = dir.path
	if !first {
		o.RaftDir = ""
	}
	o.failed = func() { d.suspect(dir) }
	if len(d.dirs) > 1 && o.Registerer != nil {
		o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"log_dir": dir.path}, o.Registerer)
	}
	set, err := OpenSet(o, now)
	if err != nil {
		dir.fail(err)
		return
	}
	dir.set = set
}

// take puts the directories that were opened to use.
func (d *Dirs) take() error {
	var failed, fatal []error
	ids := map[protocol.UUID]string{}
	for _, dir := range d.dirs {
		switch {
		case dir.set != nil:
			d.sets = append(d.sets, dir.set)
			if other, taken := ids[dir.set.claim.DirectoryID]; taken {
				fatal = append(fatal, fmt.Errorf("%s and %s have the same directory.id: %w", other, dir.path, errProperties))
			}
			ids[dir.set.claim.DirectoryID] = dir.path
		case len(d.dirs) > 1 && isStorageError(dir.failure()):
			failed = append(failed, dir.failure())
			d.logger.Error("log directory is offline", "dir", dir.path, "err", dir.failure())
		default:
			fatal = append(fatal, dir.failure())
		}
	}
	if len(d.sets) == 0 {
		fatal = append(fatal, failed...)
	}
	return errors.Join(fatal...)
}

// suspect has a directory probed in which a partition has failed for its storage.
func (d *Dirs) suspect(dir *directory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closing && !dir.probing && dir.failure() == nil {
		dir.probing = true
		d.probes.Go(func() { d.probe(dir) })
	}
}

// probeFile is written to see whether a directory can be used.
const probeFile = ".probe"

// probe finds out whether a directory has failed as a whole, and takes it out of use then.
func (d *Dirs) probe(dir *directory) {
	<-d.open
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		dir.probing = false
	}()
	if dir.set == nil {
		return
	}
	fsys, name := dir.set.shared.fsys, filepath.Join(dir.path, probeFile)
	err := vfs.WriteFileAtomic(fsys, name, []byte("probe\n"))
	if err == nil {
		err = fsys.Remove(name)
	} else {
		_ = fsys.Remove(name + ".tmp")
	}
	if err == nil || noSpace(err) {
		return
	}
	d.logger.Error("log directory has failed", "dir", dir.path, "err", err)
	dir.fail(err)
	for p := range dir.set.All() {
		_ = p.fail(fmt.Errorf("log directory %s: %w", dir.path, err))
	}
	if d.failed != nil {
		d.failed(d.IDs())
	}
}

func (d *Dirs) endProbes() {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	d.probes.Wait()
}

// usable yields what can be used.
func (d *Dirs) usable() iter.Seq[*Set] {
	return func(yield func(*Set) bool) {
		for _, dir := range d.dirs {
			if dir.set != nil && dir.failure() == nil && !yield(dir.set) {
				return
			}
		}
	}
}

// isStorageError tells what comes from a disk, and not from what is on it or in the settings.
func isStorageError(err error) bool {
	var path *fs.PathError
	var errno syscall.Errno
	return errors.As(err, &path) || errors.As(err, &errno)
}

// ClusterID is that of the directories.
func (d *Dirs) ClusterID() string { return d.sets[0].ClusterID() }

// IDs are those of the directories that can be used, as configured.
func (d *Dirs) IDs() [][16]byte {
	var ids [][16]byte
	for s := range d.usable() {
		ids = append(ids, s.DirectoryID())
	}
	return ids
}

// Directories gives all directories, as configured.
func (d *Dirs) Directories() []Directory {
	var all []Directory
	for _, dir := range d.dirs {
		path := dir.path
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		row := Directory{Path: path, Err: dir.failure()}
		if dir.set != nil && row.Err == nil {
			row.ID = dir.set.DirectoryID()
		}
		all = append(all, row)
	}
	return all
}

// DirectoryOf gives the id of the directory that a replica is in.
func (d *Dirs) DirectoryOf(p *Partition) [16]byte {
	if s := d.setOf(p); s != nil {
		return s.DirectoryID()
	}
	return [16]byte{}
}

func (d *Dirs) setOf(p *Partition) *Set {
	for _, s := range d.sets {
		if s.shared == p.shared {
			return s
		}
	}
	return nil
}

// Get gives a replica, nil if there is none.
func (d *Dirs) Get(topic string, index int32) *Partition {
	for _, s := range d.sets {
		if p := s.Get(topic, index); p != nil {
			return p
		}
	}
	return nil
}

// GetByID gives a replica by its topic's id, nil if there is none.
func (d *Dirs) GetByID(id [16]byte, index int32) *Partition {
	for _, s := range d.sets {
		if p := s.GetByID(id, index); p != nil {
			return p
		}
	}
	return nil
}

// All gives all replicas as they are at the call, in no order.
func (d *Dirs) All() iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for _, s := range d.sets {
			for p := range s.All() {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// Create makes a replica in a directory, as Set.Create does, or gives the one that is there, wherever it is. A directory that is zero is any: the
// one with the fewest replicas. One that cannot be used is KAFKA_STORAGE_ERROR.
func (d *Dirs) Create(dir [16]byte, topic string, id [16]byte, index int32, cfg *config.Topic, now time.Time) (*Partition, error) {
	d.placing.RLock()
	defer d.placing.RUnlock()
	if p := d.Get(topic, index); p != nil && p.id == id {
		return d.setOf(p).Create(topic, id, index, cfg, now)
	}
	s, err := d.setFor(dir)
	if err != nil {
		return nil, err
	}
	for _, other := range d.sets {
		if other != s {
			if err := other.Stray(topic, index); err != nil {
				return nil, err
			}
		}
	}
	return s.Create(topic, id, index, cfg, now)
}

func (d *Dirs) setFor(dir [16]byte) (*Set, error) {
	var fewest *Set
	for s := range d.usable() {
		if s.DirectoryID() == dir {
			return s, nil
		}
		if fewest == nil || s.size() < fewest.size() {
			fewest = s
		}
	}
	if dir != [16]byte{} || fewest == nil {
		return nil, fmt.Errorf("log directory %s: %w", protocol.UUID(dir), kerr.KafkaStorageError)
	}
	return fewest, nil
}

func (s *Set) size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.mu.names)
}

// Delete takes a replica away, as Set.Delete does.
func (d *Dirs) Delete(topic string, index int32) error {
	d.placing.RLock()
	defer d.placing.RUnlock()
	var errs []error
	for _, s := range d.sets {
		errs = append(errs, s.Delete(topic, index))
	}
	return errors.Join(errs...)
}

// Stray puts a replica aside that the cluster doesn't know, as Set.Stray does.
func (d *Dirs) Stray(p *Partition) error {
	d.placing.RLock()
	defer d.placing.RUnlock()
	if s := d.setOf(p); s != nil {
		return s.Stray(p.topic, p.index)
	}
	return nil
}

// SetConfig changes the settings of a topic's partitions.
func (d *Dirs) SetConfig(topic string, cfg *config.Topic) {
	for _, s := range d.sets {
		s.SetConfig(topic, cfg)
	}
}

// SetBrokerConfig changes the node's settings.
func (d *Dirs) SetBrokerConfig(cfg *config.Broker) {
	for _, s := range d.sets {
		s.SetBrokerConfig(cfg)
	}
}

// Close closes all, as Set.Close does; what has failed is left as it is.
func (d *Dirs) Close() error {
	d.endProbes()
	for _, dir := range d.dirs {
		if dir.set != nil && dir.failure() != nil {
			dir.set.Abandon()
		}
	}
	var errs []error
	var closing sync.WaitGroup
	var mu sync.Mutex
	for s := range d.usable() {
		closing.Go(func() {
			err := s.Close()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
