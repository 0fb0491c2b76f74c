package partition

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"oncelog/config"
	"oncelog/controlmarkers"
	"oncelog/log"
	"oncelog/protocol"
)

// tell logs what the opening of a log found and did.
func (p *Partition) tell(r log.Report) {
	logger := p.shared.logger.With("topic", p.topic, "partition", p.index)
	for _, x := range r.Rebuilt {
		logger.Warn("index is rebuilt", "segment", x.Base, "cause", x.Cause)
	}
	if n := len(r.Scanned) - len(r.Rebuilt); n > 0 && p.log.End() > 0 {
		logger.Info("recovered segments", "segments", n, "end", p.log.End())
	}
	if c := r.Cut; c != nil && len(c.Kept) > 0 {
		logger.Error("cut off the end of the log, what is whole behind the damage is kept",
			"offset", c.Offset, "cause", c.Cause, "records", c.Records, "batches", c.Batches, "files", c.Kept, "dir", p.dir)
	} else if c != nil {
		logger.Warn("cut off the end of the log", "offset", c.Offset, "bytes", c.Bytes, "cause", c.Cause)
	}
	if r.Reset {
		logger.Warn("the log ended below its start, it begins anew", "start", p.log.Start())
	}
	if len(r.Removed) > 0 {
		logger.Warn("removed segments", "segments", len(r.Removed), "end", p.log.End())
	}
}

// recoveredFrom is the base of the first segment of which more is to be derived anew than its indexes; ok is false if there is none.
func recoveredFrom(r log.Report) (base int64, ok bool) {
	for _, scanned := range r.Scanned {
		rebuilt := false
		for _, x := range r.Rebuilt {
			rebuilt = rebuilt || x.Base == scanned
		}
		if !rebuilt && (!ok || scanned < base) {
			base, ok = scanned, true
		}
	}
	return base, ok
}

// mendLater has the indexes mended in which reads found wrong entries.
func (p *Partition) mendLater() {
	if p.mending.CompareAndSwap(false, true) {
		p.shared.schedule.after(0, func(time.Time) { p.mendIndexes() })
	}
}

func (p *Partition) mendIndexes() {
	var err error
	defer p.guard(&err)
	p.mending.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Err() != nil {
		return
	}
	bases, err := p.log.Mend()
	for _, base := range bases {
		p.shared.logger.Warn("index is rebuilt", "topic", p.topic, "partition", p.index, "segment", base, "cause", "it didn't fit the log")
	}
	if err != nil {
		_ = p.storageErrorLocked(err)
	}
}

// abortedIn gives the aborted transactions for a reader. An index that can't be read is built anew.
func (p *Partition) abortedIn(dst []controlmarkers.Aborted, from, to int64) ([]controlmarkers.Aborted, error) {
	found, err := p.txns.collect(dst, from, to)
	if !errors.Is(err, controlmarkers.ErrIndex) {
		return found, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Err(); err != nil {
		return nil, err
	}
	bad, err := p.txns.unreadable()
	if err == nil {
		err = p.rebuildTxnIndexes(bad)
	}
	if err != nil {
		return nil, err
	}
	return p.txns.collect(dst[:0], from, to)
}

// rebuildTxnIndexes builds the indexes of aborted transactions of some segments anew.
func (p *Partition) rebuildTxnIndexes(bases []int64) error {
	for _, base := range bases {
		p.shared.logger.Warn("transaction index is rebuilt", "topic", p.topic, "partition", p.index, "segment", base)
		if err := p.rebuildTxnIndex(base); err != nil {
			return err
		}
	}
	return nil
}

// unreadable gives the segments whose file can't be read as an index.
func (x *txnIndex) unreadable() (bases []int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.mu.segments {
		if s.loaded {
			continue
		}
		switch _, err := x.load(s.base); {
		case errors.Is(err, controlmarkers.ErrIndex):
			bases = append(bases, s.base)
		case err != nil && !isNotExist(err):
			return nil, err
		}
	}
	return bases, nil
}

// leaveNameless keeps a partition whose directory doesn't say which topic it belongs to: it is offline, under its name alone, until the cluster
// says what it is (nameAgain), or that it is nothing (Stray).
func (s *Set) leaveNameless(k key, cfg *config.Topic, cause error) {
	p := s.newPartition(k.topic, protocol.UUID{}, k.index, cfg)
	_ = p.fail(fmt.Errorf("load: %s: %w", filepath.Join(p.dir, partitionMetadataFile), cause))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.names[k] = p
}

// nameAgain loads such a partition as one of a topic, which the cluster knows it to be.
func (s *Set) nameAgain(p *Partition, id protocol.UUID, cfg *config.Topic, now time.Time) (*Partition, error) {
	name := filepath.Join(p.dir, partitionMetadataFile)
	if err := s.shared.fsys.Rename(name, name+badSuffix); err != nil && !isNotExist(err) {
		return nil, err
	}
	if err := writeMetadata(s.shared.fsys, p.dir, id); err != nil {
		return nil, err
	}
	if err := errors.Join(syncFile(s.shared.fsys, name), s.shared.fsys.SyncDir(p.dir)); err != nil {
		return nil, err
	}
	s.shared.logger.Warn("partition.metadata is written anew from the cluster's metadata", "topic", p.topic, "partition", p.index, "id", id)
	s.loadPartition(entry{p.key()}, cfg, s.checkpoints.kept, now)
	return s.Get(p.topic, p.index), nil
}
