package partition

import (
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// shared is what the partitions of a set have in common.
type shared struct {
	fsys     vfs.FS
	logger   *slog.Logger
	nodeID   int32
	opened   time.Time // of the set: what stands for the time of appends that only the log knows of
	files    *log.Files
	schedule schedule
	making   crew // makes new partitions' files
	syncs    crew // makes what was appended durable
	parent   dirSync
	failed   func()    // told when a partition fails for its storage; nil if nobody wants to know
	cleaner  *cleaner  // nil if nothing is compacted
	cleaned  alarm     // the checkpoint of what is clean, armed by a cleaning
	advancer *advancer // keeps recovery points from staying behind
	// unverified: transactional batches may begin a transaction without a guard (transaction.partition.verification.enable is off).
	unverified atomic.Bool
	// checkpoints are armed by the first change that they would have to tell.
	highWatermarks, points alarm
	rebuilt                sync.Pool // *[]byte, for batches that are compressed anew
}

// Partition is one replica: its log, what the log says about producers and transactions, and who leads it up to where.
//
// Appends, and all else that changes the log, hold mu. Readers don't: they see a view, which each change publishes whole
// when it is complete, and read the log up to the view's bounds.
type Partition struct {
	shared *shared
	topic  string
	index  int32
	id     protocol.UUID
	dir    string

	log *log.Log // nil if it couldn't be opened; then the partition is offline
	// unloaded: it couldn't be for want of space, and is tried again when the partition is asked for (Create). Immutable once it is in the set.
	unloaded bool
	txns     *txnIndex
	cfg      atomic.Pointer[config.Topic]
	epochs   atomic.Pointer[epochs] // changed under mu
	loaded   atomic.Bool            // mu.table is there

	syncState   atomic.Int32
	advanceNext atomic.Bool // the next sync in the background is to advance the recovery point
	syncing     sync.Mutex  // one sync at a time; before mu
	savedEpochs epochs      // what the file of leader epochs has; guarded by syncing
	mu          struct {
		sync.Mutex
		table     *idempotence.Table // nil until it is first needed
		snapshots []int64            // offsets of the snapshot files, ascending
		unsynced  []string           // files that have to be synced before the recovery point moves over them
		// unstableFloor is where a transaction counts as beginning that began below the log start: the base of the batch that holds the
		// log start (Kafka's way).
		unstableFloor int64
		made          bool  // the directory and partition.metadata are there
		change        int64 // number of the change that made the directory (dirSync)
		durable       bool  // so are the directory and partition.metadata
		counted       int64 // log end as of the last append that flush.messages counted to
		noSpace       bool  // the last write found the disk full, and that was logged
		flushing      bool  // a flush by flush.ms is scheduled
		touched       bool  // since the last housekeeping
		// behind is how many bytes have been appended since the recovery point was last advanced, and would be read again.
		behind int64
		within []int64 // offsets of the snapshots that lie within segments, ascending
	}
	view       view
	compaction compaction
	mending    atomic.Bool // a mending of indexes is scheduled
}

// Topic is the topic's name.
func (p *Partition) Topic() string { return p.topic }

// TopicID is the topic's id.
func (p *Partition) TopicID() [16]byte { return p.id }

// Index is the partition's number in its topic.
func (p *Partition) Index() int32 { return p.index }

// Size is the length of all segments in bytes.
func (p *Partition) Size() int64 {
	if p.log == nil {
		return 0
	}
	return p.log.Size()
}

func (p *Partition) key() key { return key{p.topic, p.index} }

// Err is not nil if the replica is offline, or was deleted.
func (p *Partition) Err() error {
	p.view.Lock()
	defer p.view.Unlock()
	return p.view.err
}

// Offsets gives the current view. An error while the producers' state is loaded takes the partition offline, and leaves
// LSO at the log start.
func (p *Partition) Offsets() Offsets {
	_ = p.load()
	p.view.Lock()
	defer p.view.Unlock()
	return p.view.offsets
}

// Lead makes this node the leader from an epoch on, with the given replicas and in-sync replicas. A call with an older epoch
// changes nothing; one with the same epoch tells a new ISR.
func (p *Partition) Lead(epoch int32, replicas, isr []int32) (err error) {
	defer p.guard(&err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Err(); err != nil {
		return err
	}
	if epoch < p.view.offsets.LeaderEpoch {
		return fmt.Errorf("epoch %d, have %d: %w", epoch, p.view.offsets.LeaderEpoch, kerr.FencedLeaderEpoch)
	}
	end := p.log.End()
	if e := *p.epochs.Load(); epoch > e.latest() {
		e = e.assign(epoch, end)
		p.epochs.Store(&e)
	}
	p.view.lead(epoch, end, len(replicas), len(isr), slices.Equal(isr, []int32{p.shared.nodeID}))
	p.publishLocked()
	p.catchUpLocked()
	return nil
}

// Resign ends the leadership, unless it has been renewed beyond the epoch: until the next Lead appends, and reads that ask for the
// leader, are answered NOT_LEADER_OR_FOLLOWER.
func (p *Partition) Resign(epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view.resign(epoch)
}

// publishLocked makes the log's state visible: the high watermark where nobody else has to be asked, the last stable
// offset, and with them everything that was appended.
func (p *Partition) publishLocked() {
	p.view.Lock()
	defer p.view.Unlock()
	o, cfg := &p.view.offsets, p.cfg.Load()
	before := *o
	o.Start, o.End = p.log.Start(), p.log.End()
	o.HW = min(max(o.HW, o.Start), o.End)
	if p.view.alone && p.view.isr >= min(int(cfg.MinInsyncReplicas), p.view.replicas) {
		o.HW = max(o.HW, p.committable(cfg))
	}
	o.LSO = min(o.LSO, o.HW)
	if p.mu.table != nil {
		first := p.mu.table.FirstUnstable(o.HW)
		if first >= 0 && first < o.Start {
			first = p.mu.unstableFloor
		}
		o.LSO = controlmarkers.LastStable(first, o.HW)
	}
	if o.LSO >= p.compaction.lookAt {
		p.compaction.lookAt = math.MaxInt64
		p.shared.cleaner.touch(p)
	}
	durable := p.log.Durable()
	synced := durable != p.view.durable
	p.view.durable = durable
	if *o != before {
		p.view.wakeLocked(o.HW != before.HW)
	}
	if synced || o.HW != before.HW {
		p.view.releaseLocked()
	}
}

// trimmedLocked follows a raised log start.
func (p *Partition) trimmedLocked() error {
	start := p.log.Start()
	if e := p.epochs.Load().trim(start); !slices.Equal(e, *p.epochs.Load()) {
		p.epochs.Store(&e)
	}
	return p.findFloorLocked()
}

// loadFloorLocked finds the floor if there is a transaction that needs it.
func (p *Partition) loadFloorLocked(table *idempotence.Table) error {
	p.view.Lock()
	first := table.FirstUnstable(p.view.offsets.HW)
	p.view.Unlock()
	if first < 0 || first >= p.log.Start() {
		return nil
	}
	return p.findFloorLocked()
}

// findFloorLocked finds the base of the batch that holds the log start.
func (p *Partition) findFloorLocked() error {
	start := p.log.Start()
	p.mu.unstableFloor = start
	for b, err := range p.log.Batches(start) {
		if err != nil {
			return err
		}
		p.mu.unstableFloor = min(start, b.Header().BaseOffset)
		break
	}
	return nil
}

// fail takes the partition offline for good, with one line in the log, and gives the error that everybody gets from now on.
func (p *Partition) fail(cause error, facts ...any) error {
	err := fmt.Errorf("%s is offline: %w: %w", p.key(), kerr.KafkaStorageError, cause)
	if p.view.close(err) {
		p.shared.logger.Error("partition is offline", append([]any{"topic", p.topic, "partition", p.index, "err", cause}, facts...)...)
		if p.shared.failed != nil && isStorageError(cause) && !noSpace(cause) {
			p.shared.failed()
		}
	}
	return p.Err()
}

// storageError is the answer to a write that went wrong: a full disk refuses this write, all else takes the partition offline.
func (p *Partition) storageErrorLocked(err error) error {
	if !noSpace(err) || p.log.Failed() != nil {
		return p.fail(err)
	}
	if !p.mu.noSpace {
		p.mu.noSpace = true
		p.shared.logger.Error("no space left, appends are refused", "topic", p.topic, "partition", p.index, "err", err)
	}
	return fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
}

// guard turns a panic below into an offline partition. Defer it before anything that unlocks.
func (p *Partition) guard(err *error) {
	if v := recover(); v != nil {
		*err = p.fail(fmt.Errorf("panic: %v", v), "stack", string(debug.Stack()))
	}
}

// setConfig changes the topic's settings.
func (p *Partition) setConfig(cfg *config.Topic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Store(cfg)
	if p.Err() != nil {
		return
	}
	p.log.SetSettings(segmentSettings(cfg))
	if cfg.CleanupCompact {
		p.shared.cleaner.touch(p)
	}
	p.publishLocked()
	p.catchUpLocked()
}

// segmentSettings are a topic's settings that concern its segments.
func segmentSettings(cfg *config.Topic) log.Settings {
	s := log.Settings{
		SegmentBytes: cfg.SegmentBytes, SegmentMs: cfg.SegmentMs, SegmentJitterMs: cfg.SegmentJitterMs,
		IndexIntervalBytes: cfg.IndexIntervalBytes, SegmentIndexBytes: cfg.SegmentIndexBytes,
	}
	if cfg.CleanupCompact && cfg.MaxCompactionLagMs > 0 && cfg.MaxCompactionLagMs < math.MaxInt64 {
		s.SegmentMs = min(s.SegmentMs, cfg.MaxCompactionLagMs)
	}
	return s
}
