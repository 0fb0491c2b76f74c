package partition

import (
	"bytes"
	"path/filepath"
	"time"

	"oncelog/internal/vfs"
	"oncelog/log"
)

// planHousekeeping begins what is done again and again: retention, first after log.initial.task.delay.ms, and the expiry of
// producers.
func (s *Set) planHousekeeping() {
	s.shared.schedule.after(millis(s.broker().Int("log.initial.task.delay.ms")), s.housekeep)
	s.shared.schedule.after(millis(s.broker().Int("producer.id.expiration.check.interval.ms")), s.expireProducers)
}

func (s *Set) housekeep(now time.Time) {
	for p := range s.All() {
		_ = p.retain(now) // it logs its error
		p.quiesce()
	}
	s.shared.files.CloseIdle()
	s.shared.schedule.after(millis(s.broker().Int("log.retention.check.interval.ms")), s.housekeep)
}

func (s *Set) expireProducers(now time.Time) {
	expiration := s.broker().Int("producer.id.expiration.ms")
	for p := range s.All() {
		p.mu.Lock()
		if p.mu.table != nil {
			p.mu.table.Expire(now.UnixMilli(), expiration)
		}
		p.mu.Unlock()
	}
	s.shared.schedule.after(millis(s.broker().Int("producer.id.expiration.check.interval.ms")), s.expireProducers)
}

// quiesce gives back what a partition needn't hold that nothing was appended to since the last time.
func (p *Partition) quiesce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if touched := p.mu.touched; touched || p.Err() != nil {
		p.mu.touched = false
		return
	}
	if err := p.log.Quiesce(); err != nil {
		_ = p.fail(err)
		return
	}
	if p.mu.behind > replayBytesMax {
		p.advanceNext.Store(true)
	}
	if p.log.Durable() < p.log.End() || p.mu.behind > replayBytesMax {
		p.syncSoon() // it is on disk anyway by now, and the next start need not look
	}
}

// retain removes the segments that retention lets go: those below the log start, and if the topic's policy is delete those beyond
// retention.bytes and retention.ms. It looks from the oldest on and stops at the first that stays.
func (p *Partition) retain(now time.Time) (err error) {
	defer p.guard(&err)
	if err := p.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	segments := p.log.Segments()
	n, err := p.expired(segments, now)
	if err != nil || n == 0 {
		return err
	}
	base := p.log.End()
	if n < len(segments) {
		base = segments[n].Base
	} else if err := p.rollLocked(now); err != nil {
		return p.storageErrorLocked(err)
	}
	if base > p.log.Start() {
		if err := p.log.TrimTo(base); err != nil {
			return p.storageErrorLocked(err)
		}
	}
	removed, err := p.log.RemoveBefore(base)
	if err != nil {
		return p.fail(err)
	}
	for _, r := range removed {
		p.unlinkLater(r)
		if err := p.dropAside(r); err != nil {
			return p.fail(err)
		}
	}
	p.shared.logger.Info("removed segments", "topic", p.topic, "partition", p.index, "segments", len(removed), "start", base)
	if err := p.trimmedLocked(); err != nil {
		return p.storageErrorLocked(err)
	}
	p.publishLocked()
	p.changedLocked()
	return nil
}

// expired is how many of the segments may go.
func (p *Partition) expired(segments []log.Segment, now time.Time) (n int, err error) {
	cfg, start := p.cfg.Load(), p.log.Start()
	p.view.Lock()
	highWatermark := p.view.offsets.HW
	p.view.Unlock()
	// removable: all of it is below the high watermark, and it isn't an empty segment at the end.
	removable := func(i int) bool {
		return i < len(segments) && highWatermark >= segments[i].Next && (i+1 < len(segments) || segments[i].Size > 0)
	}
	for removable(n) && n+1 < len(segments) && segments[n+1].Base <= start {
		n++
	}
	if !cfg.CleanupDelete {
		return n, nil
	}
	if excess := total(segments[n:]) - cfg.RetentionBytes; cfg.RetentionBytes >= 0 {
		for removable(n) && excess-segments[n].Size >= 0 {
			excess -= segments[n].Size
			n++
		}
	}
	for cfg.RetentionMs >= 0 && removable(n) {
		largest, err := p.log.LargestTimestamp(segments[n].Base)
		if err != nil {
			return n, err
		}
		if now.UnixMilli()-largest <= cfg.RetentionMs {
			break
		}
		n++
	}
	return n, nil
}

func total(segments []log.Segment) (bytes int64) {
	for _, s := range segments {
		bytes += s.Size
	}
	return bytes
}

// rollLocked begins a segment at the log's end.
func (p *Partition) rollLocked(now time.Time) error {
	if err := p.loadLocked(); err != nil {
		return err
	}
	base, rolled, err := p.log.Roll(now)
	if err == nil && rolled {
		p.snapshotLocked(base)
		p.rolledLocked(base)
	}
	return err
}

// dropAside removes what belongs to a segment that is gone: its index of aborted transactions, and the snapshots below its end.
func (p *Partition) dropAside(r log.Removed) error {
	for len(p.mu.snapshots) > 0 && p.mu.snapshots[0] < r.Next {
		if err := p.dropSnapshot(p.mu.snapshots[0]); err != nil {
			return err
		}
	}
	return p.txns.drop(r.Base)
}

// unlinkLater removes the files of a segment that is gone after file.delete.delay.ms; what a stop leaves, the next start removes.
func (p *Partition) unlinkLater(r log.Removed) {
	p.shared.schedule.after(millis(p.cfg.Load().FileDeleteDelayMs), func(time.Time) {
		if err := r.Unlink(p.shared.fsys); err != nil {
			p.shared.logger.Warn("segment is not removed", "topic", p.topic, "partition", p.index, "segment", r.Base, "err", err)
		}
	})
}

// logged is a checkpoint whose error is told: the next one tries again, with a new file. The directory may have failed as a whole.
func (s *Set) logged(checkpoint func() error) func() {
	return func() {
		err := checkpoint()
		if err == nil {
			return
		}
		s.shared.logger.Error("checkpoint is not written", "dir", s.dir, "err", err)
		if s.shared.failed != nil && isStorageError(err) && !noSpace(err) {
			s.shared.failed()
		}
	}
}

// checkpointPoints writes the recovery points and the log starts.
func (s *Set) checkpointPoints() error { return s.points.write(s.writePoints) }

func (s *Set) writePoints() error {
	recovery, start := map[key]int64{}, map[key]int64{}
	for p := range s.All() {
		k := p.key()
		if p.log == nil {
			keep(recovery, s.checkpoints.kept.recovery, k)
			keep(start, s.checkpoints.kept.start, k)
			continue
		}
		recovery[k] = p.log.RecoveryPoint()
		if segments := p.log.Segments(); len(segments) > 0 && p.log.Start() > segments[0].Base {
			start[k] = p.log.Start()
		}
	}
	if err := s.writeCheckpoint(recoveryPointFile, recovery); err != nil {
		return err
	}
	return s.writeCheckpoint(logStartFile, start)
}

// checkpointHighWatermarks writes the high watermarks.
func (s *Set) checkpointHighWatermarks() error { return s.marks.write(s.writeHighWatermarks) }

func (s *Set) writeHighWatermarks() error {
	offsets := map[key]int64{}
	for p := range s.All() {
		if p.log == nil {
			keep(offsets, s.checkpoints.kept.highWatermark, p.key())
			continue
		}
		p.view.Lock()
		offsets[p.key()] = p.view.offsets.HW
		p.view.Unlock()
	}
	return s.writeCheckpoint(highWatermarkFile, offsets)
}

func keep(to, from map[key]int64, k key) {
	if v, ok := from[k]; ok {
		to[k] = v
	}
}

// writeCheckpoint writes a checkpoint unless the file has the same already.
func (s *Set) writeCheckpoint(name string, offsets map[key]int64) error {
	s.checkpoints.Lock()
	defer s.checkpoints.Unlock()
	data := formatOffsets(offsets)
	if bytes.Equal(data, s.checkpoints.written[name]) {
		return nil
	}
	err := vfs.ReplaceFile(s.shared.fsys, filepath.Join(s.dir, name), data)
	if err == nil {
		err = s.shared.parent.sync(s.shared.parent.changed())
	}
	if err != nil {
		return err
	}
	s.checkpoints.written[name] = data
	return nil
}
