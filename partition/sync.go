package partition

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/config"
	"oncelog/internal/vfs"
)

// syncsAtOnce is how many partitions of a set are synced at the same time. File systems write one journal record for fsyncs
// that they get together, and disks have queues.
const syncsAtOnce = 32

// The states of a partition's background sync.
const (
	syncIdle    = iota
	syncQueued  // it will look at the log's end when its turn comes
	syncRunning // it has looked
	syncAgain   // it has looked, and somebody came after that
)

// syncSoon has the partition synced in the background. All that comes before the sync begins shares it.
func (p *Partition) syncSoon() {
	for {
		switch p.syncState.Load() {
		case syncIdle:
			if p.syncState.CompareAndSwap(syncIdle, syncQueued) {
				p.shared.syncs.add(p.syncNow)
				return
			}
		case syncRunning:
			if p.syncState.CompareAndSwap(syncRunning, syncAgain) {
				return
			}
		default:
			return
		}
	}
}

func (p *Partition) syncNow() {
	p.syncState.Store(syncRunning)
	_ = p.sync(p.advanceNext.Swap(false)) // it logs its error
	if !p.syncState.CompareAndSwap(syncRunning, syncIdle) {
		p.syncState.Store(syncQueued)
		p.shared.syncs.add(p.syncNow)
	}
}

// syncAppended is syncSoon, or a sync by the caller if it says so and nobody is at one: that spares handing the work over, and being woken for its
// result.
func (p *Partition) syncAppended(here bool) (done bool) {
	if here && p.syncState.CompareAndSwap(syncIdle, syncRunning) {
		p.syncNow()
		return true
	}
	p.syncSoon()
	return false
}

// countLocked follows an append: it gives the offset that must be durable before the append is acknowledged if flush.messages has it
// synced, else 0. With a larger number than 1 only the append that reaches it waits, as in Kafka.
func (p *Partition) countLocked(before, end int64, cfg *config.Topic) int64 {
	if cfg.FlushMessages == math.MaxInt64 || end-max(p.log.Durable(), min(p.mu.counted, before)) < cfg.FlushMessages {
		return 0
	}
	p.mu.counted = end
	return end
}

// syncsEach tells whether what is appended counts only once it is durable.
func syncsEach(cfg *config.Topic) bool { return cfg.FlushMessages <= 1 }

// committable is the offset up to which this replica has what it may be asked to keep.
func (p *Partition) committable(cfg *config.Topic) int64 {
	if syncsEach(cfg) {
		return min(p.log.Durable(), p.log.End())
	}
	return p.log.End()
}

// catchUpLocked has what came from before, perhaps under other settings, made durable where that is awaited.
func (p *Partition) catchUpLocked() {
	if syncsEach(p.cfg.Load()) && p.log.Durable() < p.log.End() {
		p.syncSoon()
	}
}

// Sync makes everything appended so far durable, and moves the recovery point. An error takes the partition offline, but for a
// full disk, on which the recovery point stays: what the partition's other files lack is written with the next sync.
func (p *Partition) Sync() error { return p.sync(false) }

// sync is Sync; one that is to advance the recovery point has all that a recovery needs to begin there made durable, too: the indexes of the last
// segment, and the producers' state.
func (p *Partition) sync(advance bool) (err error) {
	defer p.guard(&err)
	p.syncing.Lock()
	defer p.syncing.Unlock()
	if err := p.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	end, behind, err := p.log.End(), p.mu.behind, p.txns.flush()
	written := false
	if err == nil && advance {
		written, err = p.prepareAdvanceLocked(end)
	}
	p.mu.Unlock()
	if err == nil {
		err = p.saveEpochs(end)
	}
	full := noSpace(err)
	switch {
	case err == nil:
		if err = p.syncFiles(p.takeUnsynced()); err == nil && advance {
			err = p.log.Advance(end, written)
		} else if err == nil {
			err = p.log.Sync(end)
		}
	case full:
		err = errors.Join(err, p.log.Flush(end))
		full = p.log.Failed() == nil
	}
	if err != nil && !full {
		return p.fail(err)
	}
	p.mu.Lock()
	p.publishLocked()
	if full && advance {
		p.mu.behind += behind
	}
	p.mu.Unlock()
	if full {
		return fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
	}
	return nil
}

// saveEpochs writes the leader epochs, to be durable with the sync of the log that follows, if the file lacks any that has records below end: they have to be there before the
// recovery point moves over their begin. Behind the recovery point the batches tell them. Held: syncing, or nobody else has the
// partition.
func (p *Partition) saveEpochs(end int64) error {
	e := *p.epochs.Load()
	if slices.Equal(e.truncate(end), p.savedEpochs.truncate(end)) {
		return nil
	}
	if err := vfs.ReplaceFile(p.shared.fsys, filepath.Join(p.dir, leaderEpochFile), e.format()); err != nil {
		return err
	}
	p.log.DirChanged()
	p.savedEpochs = e
	return nil
}

func (p *Partition) takeUnsynced() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeUnsyncedLocked()
}

// takeUnsyncedLocked gives the files that have to be synced before the recovery point moves to the log's end.
func (p *Partition) takeUnsyncedLocked() []string {
	files := append(p.mu.unsynced, p.txns.takeUnsynced()...)
	p.mu.unsynced = nil
	return files
}

// syncFiles syncs files; the sync of the log that follows syncs the directory. Files that are gone need not be synced.
func (p *Partition) syncFiles(names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if err := syncFile(p.shared.fsys, name); err != nil && !isNotExist(err) {
			return err
		}
	}
	p.log.DirChanged()
	return nil
}
