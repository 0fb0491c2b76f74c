package partition

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// maxOpenFiles is how many segment files a set keeps open at most. Slices that are being sent come on top.
const maxOpenFiles = 1024

// openFiles is that within what the process may have: half of it is for connections and what else there is.
func openFiles() int { return max(16, min(maxOpenFiles, vfs.OpenFilesMax()/2)) }

// Options are what a set needs of its node.
type Options struct {
	FS      vfs.FS
	Dir     string // the log directory; it is made if there is none
	NodeID  int32
	RaftDir string // name of the folder in Dir that is no partition; "" for none
	// BrokerEpoch is asked at a clean stop, for the marker; nil is -1.
	BrokerEpoch func() int64
	Config      *config.Broker
	// TopicConfig gives a topic's settings when its partitions are loaded; nil is the broker's.
	TopicConfig func(topic string) *config.Topic
	// ClusterID is that of the cluster, if it is known already; OpenDirs only. "" is that of the directories.
	ClusterID string
	// DirectoryFailed is told when a log directory has failed, and which can still be used; OpenDirs only.
	DirectoryFailed func(left [][16]byte)
	Logger          *slog.Logger          // nil logs nothing
	Registerer      prometheus.Registerer // nil for no metrics

	failed func() // told when a partition fails for its storage; nil if nobody wants to know
}

// Set is the replicas in one log directory. Its goroutine does what is due later: checkpoints, retention, the expiry of
// producers, the removal of files.
type Set struct {
	shared      *shared
	dir         string
	claim       *claim
	brokerEpoch func() int64
	registerer  prometheus.Registerer
	collector   prometheus.Collector
	previous    int64                 // broker epoch of the last clean stop, -1
	clean       bool                  // the last stop was
	left        map[key]*leftSegments // by it; nil: not known

	changing sync.Mutex // one creation or deletion at a time; before mu
	mu       struct {
		sync.RWMutex
		config *config.Broker
		names  map[key]*Partition
		ids    map[idKey]*Partition
		topics map[string][]*Partition // in no order
	}
	checkpoints struct {
		sync.Mutex
		kept    checkpoints       // what was read at the start, for partitions that could not be loaded
		written map[string][]byte // content of the files, by name
	}
	// The writing of the recovery points and log starts, of the high watermarks, and of what is clean.
	points, marks, cleaned checkpointing
	cleanedWritten         bool // guarded by cleaned

	stop    context.CancelFunc
	stopped sync.WaitGroup
}

type idKey struct {
	id    protocol.UUID
	index int32
}

// ClusterID is that of the directory.
func (s *Set) ClusterID() string { return s.claim.ClusterID }

// DirectoryID is the directory's own id.
func (s *Set) DirectoryID() [16]byte { return s.claim.DirectoryID }

// PreviousBrokerEpoch is the broker epoch at the last clean stop, -1 if the last stop wasn't clean.
func (s *Set) PreviousBrokerEpoch() int64 { return s.previous }

// Get gives a replica, nil if there is none.
func (s *Set) Get(topic string, index int32) *Partition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.names[key{topic, index}]
}

// GetByID gives a replica by its topic's id, nil if there is none.
func (s *Set) GetByID(id [16]byte, index int32) *Partition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.ids[idKey{id, index}]
}

// All gives all replicas as they are at the call, in no order.
func (s *Set) All() iter.Seq[*Partition] {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.mu.names))
	s.mu.RUnlock()
	return slices.Values(all)
}

func (s *Set) broker() *config.Broker {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.config
}

func (s *Set) add(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.names[p.key()] = p
	s.mu.ids[idKey{p.id, p.index}] = p
	s.mu.topics[p.topic] = append(s.mu.topics[p.topic], p)
}

func (s *Set) forget(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.names, p.key())
	delete(s.mu.ids, idKey{p.id, p.index})
	siblings := s.mu.topics[p.topic]
	i, last := slices.Index(siblings, p), len(siblings)-1
	if i < 0 {
		return
	}
	siblings[i], siblings[last] = siblings[last], nil
	if s.mu.topics[p.topic] = siblings[:last]; last == 0 {
		delete(s.mu.topics, p.topic)
	}
}

// SetConfig changes the settings of a topic's partitions.
func (s *Set) SetConfig(topic string, cfg *config.Topic) {
	s.mu.RLock()
	partitions := slices.Clone(s.mu.topics[topic])
	s.mu.RUnlock()
	for _, p := range partitions {
		p.setConfig(cfg)
	}
}

// SetBrokerConfig changes the node's settings. Those of the topics, which depend on them, come by SetConfig.
func (s *Set) SetBrokerConfig(cfg *config.Broker) {
	s.mu.Lock()
	s.mu.config = cfg
	s.mu.Unlock()
	s.shared.advancer.limit.Store(cfg.Int("log.recovery.max.bytes"))
	s.shared.unverified.Store(!cfg.Bool("transaction.partition.verification.enable"))
	s.shared.cleaner.configure(cfg)
}

func (s *Set) newPartition(topic string, id protocol.UUID, index int32, cfg *config.Topic) *Partition {
	p := &Partition{shared: s.shared, topic: topic, index: index, id: id, dir: filepath.Join(s.dir, dirName(topic, index))}
	p.cfg.Store(cfg)
	p.epochs.Store(new(epochs))
	p.view.offsets.LeaderEpoch = -1
	p.compaction.lookAt = math.MaxInt64
	return p
}

// Delete takes a replica away. Its directory is renamed at once, and removed after file.delete.delay.ms.
func (s *Set) Delete(topic string, index int32) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if p := s.Get(topic, index); p != nil {
		return s.putAside(p, deleteSuffix)
	}
	return nil
}

// Stray puts a replica aside that the cluster doesn't know: its directory is renamed, and stays.
func (s *Set) Stray(topic string, index int32) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if p := s.Get(topic, index); p != nil {
		return s.putAside(p, straySuffix)
	}
	return nil
}

// putAside ends a replica and renames its directory.
func (s *Set) putAside(p *Partition, suffix string) error {
	s.forget(p)
	s.checkpointsAreStale(p.key())
	p.syncing.Lock() // a sync that began would write into a successor's directory
	p.mu.Lock()
	p.view.close(fmt.Errorf("%s was removed: %w", p.key(), kerr.UnknownTopicOrPartition))
	if p.log != nil {
		p.log.Abandon()
	}
	p.mu.Unlock()
	p.syncing.Unlock()
	renamed := filepath.Join(s.dir, suffixedName(p.topic, p.index, suffix))
	if err := s.shared.fsys.Rename(p.dir, renamed); err != nil && !isNotExist(err) {
		return fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
	}
	s.shared.logger.Info("partition is put aside", "topic", p.topic, "partition", p.index, "dir", filepath.Base(renamed))
	s.shared.points.ring(&s.shared.schedule)
	s.shared.highWatermarks.ring(&s.shared.schedule)
	if p.compaction.wasCleaned() {
		s.shared.cleaned.ring(&s.shared.schedule)
	}
	if suffix == deleteSuffix {
		s.removeLater(renamed, p.cfg.Load().FileDeleteDelayMs)
	}
	return nil
}

// removeLater removes a directory that has just been renamed, after a delay; what a stop leaves, the next start removes. The new name is
// durable before: else a loss of power could leave the old one with half of the files.
func (s *Set) removeLater(dir string, delayMs int64) {
	change := s.shared.parent.changed()
	s.shared.schedule.after(millis(delayMs), func(time.Time) {
		err := s.shared.parent.sync(change)
		if err == nil {
			err = s.shared.fsys.RemoveAll(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.shared.logger.Warn("directory is not removed", "dir", dir, "err", err)
		}
	})
}

// Close stops the goroutine, makes everything durable, saves the producers, and leaves the marker of a clean stop if every
// partition could be closed in order.
func (s *Set) Close() error {
	s.halt()
	var unclean atomic.Bool
	each(s.All(), max(s.workers(), syncsAtOnce), func(p *Partition) {
		clean, err := p.close()
		if err != nil {
			s.shared.logger.Error("partition is not closed in order", "topic", p.topic, "partition", p.index, "err", err)
		}
		if !clean {
			unclean.Store(true)
		}
	})
	err := errors.Join(s.checkpointPoints(), s.checkpointHighWatermarks(), s.checkpointCleaned())
	if err == nil && !unclean.Load() {
		err = errors.Join(s.saveSegments(), s.markClean())
	}
	s.shared.files.Close()
	return errors.Join(err, s.claim.release())
}

// Abandon stops the goroutine and leaves the directory as a crash would.
func (s *Set) Abandon() {
	s.halt()
	for p := range s.All() {
		p.mu.Lock()
		p.view.close(errClosed)
		if p.log != nil {
			p.log.Abandon()
		}
		p.mu.Unlock()
	}
	s.shared.files.Close()
	_ = s.claim.release()
}

// errClosed is the answer of a partition whose set was closed.
var errClosed = fmt.Errorf("the node is stopping: %w", kerr.NotLeaderForPartition)

func (s *Set) halt() {
	s.shared.cleaner.close()
	s.stop()
	s.stopped.Wait()
	s.shared.advancer.close()
	s.shared.making.close()
	s.shared.syncs.close()
	if s.collector != nil {
		s.registerer.Unregister(s.collector)
	}
}

// close ends a partition in order. It reports false if the next start has to recover it.
func (p *Partition) close() (clean bool, err error) {
	defer p.guard(&err)
	p.mu.Lock()
	usable := p.view.close(errClosed)
	if p.log == nil || !usable {
		p.mu.Unlock()
		return false, nil
	}
	if p.mu.table != nil {
		if err := p.txns.flush(); err != nil {
			p.mu.Unlock()
			return false, err
		}
		p.snapshotAtEndLocked()
	}
	end, files := p.log.End(), p.takeUnsyncedLocked()
	p.mu.Unlock()
	if err = p.saveEpochs(end); err == nil {
		err = p.syncFiles(files)
	}
	if err == nil {
		err = p.log.Close() // it syncs the log
	} else {
		p.log.Abandon() // the recovery point stays below what is not on disk
	}
	if err != nil {
		return false, fmt.Errorf("close %s: %w", p.key(), err)
	}
	return true, nil
}
