package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/log"
)

// progressEvery is after how many loaded partitions a line tells of it.
const progressEvery = 1000

// checkpoints are the offsets that a log directory keeps for its partitions.
type checkpoints struct {
	recovery, start, highWatermark, cleaner map[key]int64
}

// OpenSet claims a log directory and loads its partitions. A directory in it that is none stops it, before anything was
// changed. A partition that can't be loaded is offline; the others are not touched by that.
//
// The set's goroutine runs until Close or Abandon.
func OpenSet(o Options, now time.Time) (*Set, error) {
	claim, err := claimDir(o.FS, o.Dir, o.NodeID)
	if err != nil {
		return nil, err
	}
	s := newSet(o, claim, now)
	if err := s.load(o, now); err != nil {
		return nil, errors.Join(err, claim.release())
	}
	if s.registerer != nil {
		s.collector = collector{s}
		if err := s.registerer.Register(s.collector); err != nil {
			return nil, errors.Join(err, claim.release())
		}
	}
	s.shared.cleaner = startCleaner(s, o.Config)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.stopped.Go(func() { s.shared.schedule.run(ctx) })
	if !s.clean {
		s.shared.advancer.soon() // what has just been read need not be read again
	}
	s.planHousekeeping()
	s.planCleaning()
	return s, nil
}

func newSet(o Options, c *claim, now time.Time) *Set {
	s := &Set{
		shared: &shared{
			fsys: o.FS, logger: o.Logger, nodeID: c.NodeID, opened: now, failed: o.failed,
			files: log.NewFiles(o.FS, openFiles()), schedule: schedule{planned: make(chan struct{}, 1)},
			making: crew{limit: runtime.GOMAXPROCS(0)}, syncs: crew{limit: syncsAtOnce}, parent: dirSync{fsys: o.FS, dir: o.Dir},
			advancer: newAdvancer(),
		},
		dir: o.Dir, claim: c, registerer: o.Registerer, brokerEpoch: o.BrokerEpoch, previous: -1,
	}
	if o.Logger == nil {
		s.shared.logger = slog.New(slog.DiscardHandler)
	}
	s.shared.points.delay = func() time.Duration {
		b := s.broker()
		return millis(min(b.Int("log.flush.offset.checkpoint.interval.ms"), b.Int("log.flush.start.offset.checkpoint.interval.ms")))
	}
	s.shared.points.do = s.logged(s.checkpointPoints)
	s.shared.advancer.round = s.advance
	s.shared.cleaned.delay = func() time.Duration { return cleanedDelay }
	s.shared.cleaned.do = s.logged(s.checkpointCleaned)
	s.shared.highWatermarks.delay = func() time.Duration {
		return millis(s.broker().Int("replica.high.watermark.checkpoint.interval.ms"))
	}
	s.shared.highWatermarks.do = s.logged(s.checkpointHighWatermarks)
	s.mu.names, s.mu.ids, s.mu.topics = map[key]*Partition{}, map[idKey]*Partition{}, map[string][]*Partition{}
	s.checkpoints.written = map[string][]byte{}
	s.SetBrokerConfig(o.Config)
	return s
}

// entry is a partition's directory to load.
type entry struct{ key }

// load reads the directory.
func (s *Set) load(o Options, now time.Time) error {
	entries, leftovers, err := s.scan(o.RaftDir)
	if err != nil {
		return err
	}
	if err := s.readMarker(); err != nil {
		return err
	}
	s.left = s.readSegments()
	kept := s.readCheckpoints()
	s.checkpoints.kept = kept
	if len(entries) > 0 {
		s.shared.logger.Info("loading partitions", "dir", s.dir, "partitions", len(entries), "clean", s.clean)
	}
	topicConfig := o.TopicConfig
	if topicConfig == nil {
		defaults := o.Config.Topic(nil)
		topicConfig = func(string) *config.Topic { return defaults }
	}
	var loaded atomic.Int64
	each(slices.Values(entries), s.workers(), func(e entry) {
		s.loadPartition(e, topicConfig(e.topic), kept, now)
		if n := loaded.Add(1); n%progressEvery == 0 {
			s.shared.logger.Info("loading partitions", "dir", s.dir, "loaded", n, "of", len(entries))
		}
	})
	s.left = nil // most of it is of no use any more
	for _, dir := range leftovers {
		s.removeLater(filepath.Join(s.dir, dir), o.Config.Int("log.segment.delete.delay.ms"))
	}
	return nil
}

func (s *Set) workers() int { return int(max(1, s.broker().Int("num.recovery.threads.per.data.dir"))) }

// each calls do for all of them on some goroutines, and waits for the last.
func each[T any](all iter.Seq[T], workers int, do func(T)) {
	var running sync.WaitGroup
	next := make(chan T) // unbuffered: a worker takes one when it is free
	for range workers {
		running.Go(func() {
			for v := range next {
				do(v)
			}
		})
	}
	for v := range all {
		next <- v
	}
	close(next)
	running.Wait()
}

// scan lists the partitions' directories, and those to be removed. A directory that is neither, nor one that is known to lie there,
// is an error: what is in it would be lost on the way to Kafka and back.
func (s *Set) scan(raftDir string) (entries []entry, leftovers []string, err error) {
	list, err := s.shared.fsys.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range list {
		name := d.Name()
		if !d.IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		switch name {
		case raftDir, lostAndFound, metadataTopicDir, remoteIndexCacheDir:
			continue
		}
		topic, index, suffix, ok := parseDirName(name)
		if !ok {
			return nil, nil, fmt.Errorf("%s holds the directory %q, which is no partition: move it away", s.dir, name)
		}
		switch suffix {
		case deleteSuffix:
			leftovers = append(leftovers, name)
		case straySuffix, futureSuffix:
			s.shared.logger.Warn("directory is left alone", "dir", s.dir, "name", name)
		default:
			entries = append(entries, entry{key: key{topic, index}})
		}
	}
	return entries, leftovers, nil
}

// readMarker looks for the marker of a clean stop, and removes it: from now on the directory is in use.
func (s *Set) readMarker() error {
	name := filepath.Join(s.dir, cleanShutdownFile)
	data, err := vfs.ReadFile(s.shared.fsys, name, maxMetadataBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	marker := struct {
		BrokerEpoch int64 `json:"brokerEpoch"`
	}{-1}
	if err := json.Unmarshal(data, &marker); err != nil {
		marker.BrokerEpoch = -1 // an older Kafka's marker is empty
	}
	s.clean, s.previous = true, marker.BrokerEpoch
	if err := s.shared.fsys.Remove(name); err != nil {
		return err
	}
	return s.shared.fsys.SyncDir(s.dir)
}

// markClean leaves the marker.
func (s *Set) markClean() error {
	epoch := int64(-1)
	if s.brokerEpoch != nil {
		epoch = s.brokerEpoch()
	}
	return vfs.WriteFileAtomic(s.shared.fsys, filepath.Join(s.dir, cleanShutdownFile), fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, epoch))
}

// readCheckpoints reads the directory's checkpoints. What can't be read counts as empty, which costs a recovery.
func (s *Set) readCheckpoints() checkpoints {
	read := func(name string) map[key]int64 {
		offsets, err := readOffsets(s.shared.fsys, filepath.Join(s.dir, name))
		if err != nil {
			s.shared.logger.Warn("checkpoint is unusable", "dir", s.dir, "file", name, "err", err)
			offsets = map[key]int64{}
		}
		return offsets
	}
	return checkpoints{read(recoveryPointFile), read(logStartFile), read(highWatermarkFile), read(cleanerFile)}
}

// loadPartition loads one partition; if that fails it is there, but offline.
func (s *Set) loadPartition(e entry, cfg *config.Topic, kept checkpoints, now time.Time) {
	dir := filepath.Join(s.dir, e.String())
	id, err := readMetadata(s.shared.fsys, dir)
	if isNotExist(err) || errors.Is(err, errMetadata) {
		if !s.removeNameless(e.key, dir, err) {
			s.leaveNameless(e.key, cfg, err)
		}
		return
	}
	p := s.newPartition(e.topic, id, e.index, cfg)
	cleaned, compacted := kept.cleaner[e.key]
	p.compaction.mu.known, p.compaction.mu.cleaned = compacted, cleaned
	if err == nil {
		err = p.checkDamage()
	}
	if err == nil {
		err = p.openLeft(log.Recovery{
			Clean: s.clean, RecoveryPoint: kept.recovery[e.key], LogStart: kept.start[e.key],
			AllowGaps: cfg.CleanupCompact || compacted,
		}, s.leftOf(e.key), kept.highWatermark[e.key], now)
	}
	if err != nil {
		p.unloaded = noSpace(err)
		_ = p.fail(fmt.Errorf("load: %w", err))
	}
	s.add(p)
}

// loadAgain loads a partition that could not be loaded for want of space.
func (s *Set) loadAgain(p *Partition, cfg *config.Topic, now time.Time) *Partition {
	s.forget(p)
	s.loadPartition(entry{p.key()}, cfg, s.checkpoints.kept, now)
	return s.Get(p.topic, p.index)
}

// removeNameless removes a directory that doesn't say which topic it belongs to if there are no records in it: that is what a power failure
// leaves of a partition that nothing was ever appended to. It reports false for one with records, which is left.
func (s *Set) removeNameless(k key, dir string, cause error) bool {
	empty := true
	files, err := s.shared.fsys.ReadDir(dir)
	for _, f := range files {
		if strings.HasSuffix(f.Name(), log.ExtLog) {
			st, statErr := f.Info()
			err = errors.Join(err, statErr)
			empty = empty && statErr == nil && st.Size() == 0
		}
	}
	if err != nil || !empty {
		return false
	}
	s.shared.logger.Warn("removing a partition without records and metadata", "topic", k.topic, "partition", k.index, "err", cause)
	if err := s.shared.fsys.RemoveAll(dir); err != nil {
		s.shared.logger.Error("partition without metadata is left", "topic", k.topic, "partition", k.index, "err", err)
	}
	return true
}

// open opens the log and what belongs to it. After a crash the producers' state is rebuilt at once, else when it is first
// needed.
func (p *Partition) open(r log.Recovery, highWatermark int64, now time.Time) (err error) {
	opened := false
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		if !opened {
			p.log = nil
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	rec := newRecovery(p, r.RecoveryPoint)
	r.Replay = rec
	o := log.Options{Files: p.shared.files, Settings: segmentSettings(p.cfg.Load())}
	l, report, err := log.Open(p.shared.fsys, p.dir, o, r, now)
	if err != nil {
		return err
	}
	p.log, opened = l, true
	p.tell(report)
	for _, removed := range report.Removed {
		p.unlinkLater(removed)
	}
	if err := p.adopt(report, rec); err != nil {
		return err
	}
	if !r.Clean {
		if p.mu.behind, err = l.Distance(max(l.Start(), min(l.RecoveryPoint(), l.End())), l.End()); err != nil {
			return err
		}
	}
	p.view.offsets.HW = min(max(highWatermark, l.Start()), l.End())
	p.publishLocked()
	if l.End() == 0 {
		return nil
	}
	if base, ok := recoveredFrom(report); ok && rec.base < 0 {
		rec.base, rec.from = base, math.MaxInt64 // after a clean stop, where no crash was to be expected
	}
	if rec.base < 0 {
		return nil
	}
	return rec.finish()
}

// adopt takes over the files of the directory that are not the log's: it keeps what belongs to the segments that are there, the snapshot
// at the end, and the one that a recovery began with.
func (p *Partition) adopt(r log.Report, rec *recovery) error {
	bases := map[int64]bool{}
	last := int64(0)
	for _, s := range p.log.Segments() {
		bases[s.Base] = true
		last = max(last, s.Base)
	}
	snapshots := p.mu.snapshots
	if rec.base < 0 {
		snapshots = offsetsOf(r.Others, extSnapshot)
	}
	newest := int64(-1)
	for _, offset := range snapshots {
		if offset <= p.log.End() {
			newest = max(newest, offset)
		}
	}
	var errs []error
	p.mu.snapshots = nil
	for _, offset := range snapshots {
		switch resumed := rec.base >= 0 && offset == rec.from && offset <= p.log.End(); {
		case bases[offset] || offset == newest && offset > last || resumed:
			p.mu.snapshots = append(p.mu.snapshots, offset)
			if resumed && !bases[offset] {
				p.mu.within = []int64{offset}
			}
		default:
			errs = append(errs, remove(p.shared.fsys, p.path(offset, extSnapshot)))
		}
	}
	for _, offset := range offsetsOf(r.Others, extWindow) {
		if !slices.Contains(p.mu.snapshots, offset) {
			errs = append(errs, remove(p.shared.fsys, p.path(offset, extWindow)))
		}
	}
	var txns []int64
	for _, base := range offsetsOf(r.Others, extTxnIndex) {
		if bases[base] {
			txns = append(txns, base)
		} else {
			errs = append(errs, remove(p.shared.fsys, p.path(base, extTxnIndex)))
		}
	}
	p.txns = openTxnIndex(p.shared.fsys, p.dir, txns)
	p.mu.made, p.mu.durable, p.mu.change = true, p.log.End() > 0, p.shared.parent.changed()
	p.mu.unstableFloor = p.log.Start()
	return errors.Join(append(errs, p.adoptEpochs())...)
}

// adoptEpochs reads the leader epochs. A file that can't be read is made anew from the batches.
func (p *Partition) adoptEpochs() error {
	e, err := readEpochs(p.shared.fsys, p.dir)
	if err == nil {
		p.savedEpochs = e
	}
	// What is durable had its epochs written before; those of the rest follow from its recovery.
	if err == nil && len(e) == 0 && p.log.Size() > 0 && p.log.Durable() > p.log.Start() {
		err = fmt.Errorf("no epochs in %s: %w", leaderEpochFile, errCheckpoint)
	}
	if errors.Is(err, errCheckpoint) {
		p.shared.logger.Warn("leader epochs are rebuilt", "topic", p.topic, "partition", p.index, "err", err)
		e, err = p.epochsOfLog()
	}
	if err != nil {
		return err
	}
	e = e.truncate(p.log.End()).trim(p.log.Start())
	p.epochs.Store(&e)
	return nil
}

func (p *Partition) epochsOfLog() (e epochs, err error) {
	for b, err := range p.log.Batches(p.log.Start()) {
		if err != nil {
			return nil, err
		}
		if h := b.Header(); h.LeaderEpoch > e.latest() {
			e = e.assign(h.LeaderEpoch, h.BaseOffset)
		}
	}
	return e, nil
}
