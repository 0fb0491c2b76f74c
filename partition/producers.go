package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// maxSnapshotBytes bounds what is read of one: 1 GiB are some 20 million producers.
const maxSnapshotBytes = 1 << 30

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func (p *Partition) path(offset int64, ext string) string {
	return filepath.Join(p.dir, log.FileName(offset, ext))
}

// load reads the producers' state if that has not been done.
func (p *Partition) load() error {
	if p.loaded.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loadLocked()
}

// loadLocked reads the newest snapshot and replays what follows it. A partition that was stopped in order has a
// snapshot of its end, so nothing follows, and a partition that nobody uses never gets here.
func (p *Partition) loadLocked() error {
	if p.mu.table != nil {
		return nil
	}
	if err := p.Err(); err != nil {
		return err
	}
	table := idempotence.New()
	err := p.restore(table, p.log.End())
	if err == nil {
		err = p.mendTxnIndex()
	}
	if err == nil {
		err = p.loadFloorLocked(table)
	}
	if err != nil {
		return p.fail(fmt.Errorf("load producers: %w", err))
	}
	p.readyLocked(table)
	return nil
}

func (p *Partition) readyLocked(table *idempotence.Table) {
	p.mu.table = table
	p.loaded.Store(true)
	p.publishLocked()
}

// restore makes an empty table that of an offset: the newest snapshot at or below it, and the batches from there on.
func (p *Partition) restore(table *idempotence.Table, end int64) error {
	from, err := p.readSnapshot(table, end)
	if err != nil {
		return err
	}
	return p.replay(table, from, end, nil)
}

// replay takes the batches in [from, end) into a table. ended, if not nil, is told of every transaction that a marker ended.
func (p *Partition) replay(table *idempotence.Table, from, end int64, ended func(idempotence.Ended) error) error {
	if from >= end {
		return nil
	}
	now := p.shared.opened.UnixMilli()
	for b, err := range p.log.Batches(from) {
		if err != nil {
			return err
		}
		h := b.Header()
		if h.BaseOffset >= end {
			return nil
		}
		if err := replayBatch(table, b, &h, now, ended); err != nil {
			return err
		}
	}
	return nil
}

func replayBatch(table *idempotence.Table, b protocol.Batch, h *protocol.BatchHeader, now int64, ended func(idempotence.Ended) error) error {
	if h.ProducerID < 0 {
		return nil
	}
	if !h.Control() {
		table.Apply(h, now)
		return nil
	}
	m, ok, err := controlmarkers.Decode(b)
	if err != nil {
		return fmt.Errorf("control batch at %d: %w", h.BaseOffset, err)
	}
	if !ok {
		return nil
	}
	if e, ok := table.ApplyMarker(h, m, now); ok && ended != nil {
		return ended(e)
	}
	return nil
}

// readSnapshot restores the newest snapshot at or below an offset, and gives the offset that it stands for; the base of the first segment
// and an empty table if there is none. What lies below the log start counts as long as it is on disk: a producer may still ask for it. Damaged ones are removed and the next older taken; one whose window file is damaged
// is used only if no older one is whole, and the log doesn't begin with offset 0.
func (p *Partition) readSnapshot(table *idempotence.Table, end int64) (int64, error) {
	first := p.log.First()
	type candidate struct {
		offset  int64
		entries []idempotence.Entry
	}
	var withoutWindows *candidate
	for _, offset := range slices.Backward(slices.Clone(p.mu.snapshots)) {
		if offset > end || offset < first {
			continue
		}
		entries, windows, err := p.parseSnapshot(offset)
		switch {
		case err == nil:
			table.Restore(entries, windows, p.shared.opened.UnixMilli())
			return offset, nil
		case entries != nil && withoutWindows == nil:
			p.shared.logger.Warn("window file is unusable", "topic", p.topic, "partition", p.index, "offset", offset, "err", err)
			withoutWindows = &candidate{offset, entries}
		case !isNotExist(err) && !errors.Is(err, idempotence.ErrSnapshot) && !errors.Is(err, vfs.ErrTooLarge):
			return 0, err
		case entries == nil:
			p.shared.logger.Warn("producer snapshot is unusable", "topic", p.topic, "partition", p.index, "offset", offset, "err", err)
			if err := p.dropSnapshot(offset); err != nil {
				return 0, err
			}
		}
	}
	if withoutWindows != nil && first > 0 {
		table.Restore(withoutWindows.entries, nil, p.shared.opened.UnixMilli())
		return withoutWindows.offset, nil
	}
	return first, nil
}

// parseSnapshot reads a snapshot and its windows. With an error the entries may be good all the same, and not nil then.
func (p *Partition) parseSnapshot(offset int64) ([]idempotence.Entry, []idempotence.Window, error) {
	data, err := vfs.ReadFile(p.shared.fsys, p.path(offset, extSnapshot), maxSnapshotBytes)
	if err != nil {
		return nil, nil, err
	}
	entries, err := idempotence.ParseSnapshot(data)
	if err != nil {
		return nil, nil, err
	}
	side, err := vfs.ReadFile(p.shared.fsys, p.path(offset, extWindow), maxSnapshotBytes)
	if isNotExist(err) {
		return entries, nil, nil // Kafka wrote it
	}
	if err != nil {
		return entries, nil, err
	}
	windows, err := idempotence.ParseWindows(side, data)
	return entries, windows, err
}

// snapshotLocked saves the producers' state, which is that of the offset. An error costs only the time of a longer replay.
func (p *Partition) snapshotLocked(offset int64) {
	if n := len(p.mu.snapshots); offset == 0 || n > 0 && p.mu.snapshots[n-1] >= offset {
		return
	}
	snapshot := p.mu.table.AppendSnapshot(nil)
	err := error(nil)
	if producers, _ := p.mu.table.Len(); producers > 0 {
		err = p.writeAside(p.path(offset, extWindow), p.mu.table.AppendWindows(nil, snapshot))
	}
	if err == nil {
		err = p.writeAside(p.path(offset, extSnapshot), snapshot)
	}
	if err != nil {
		p.shared.logger.Warn("producer snapshot is not written", "topic", p.topic, "partition", p.index, "offset", offset, "err", err)
		return
	}
	p.mu.snapshots = append(p.mu.snapshots, offset)
}

// replayBytesMax is how much of a log without producers is read again at the next start rather than that a snapshot tells that there
// are none: thousands of partitions may be as small.
const replayBytesMax = 64 << 10

// snapshotAtEndLocked saves the producers' state for the next start.
func (p *Partition) snapshotAtEndLocked() {
	end := p.log.End()
	if producers, _ := p.mu.table.Len(); producers == 0 {
		from := p.log.Start()
		if n := len(p.mu.snapshots); n > 0 {
			from = max(from, p.mu.snapshots[n-1])
		}
		if bytes, err := p.log.Distance(from, end); err == nil && bytes <= replayBytesMax {
			return
		}
	}
	p.snapshotLocked(end)
}

// writeAside writes a file that is synced before the recovery point passes over it, and that a checksum guards until then.
func (p *Partition) writeAside(name string, data []byte) error {
	f, err := p.shared.fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, remove(p.shared.fsys, name))
	}
	p.mu.unsynced = append(p.mu.unsynced, name)
	return nil
}

// dropSnapshot removes a snapshot.
func (p *Partition) dropSnapshot(offset int64) error {
	p.mu.snapshots = slices.DeleteFunc(p.mu.snapshots, func(o int64) bool { return o == offset })
	return errors.Join(remove(p.shared.fsys, p.path(offset, extSnapshot)), remove(p.shared.fsys, p.path(offset, extWindow)))
}

// mendTxnIndex builds the index of aborted transactions of a segment anew if the file can't be right.
func (p *Partition) mendTxnIndex() error {
	bad, err := p.txns.check()
	if err != nil {
		return err
	}
	return p.rebuildTxnIndexes(bad)
}

// rebuildTxnIndex replays a segment.
func (p *Partition) rebuildTxnIndex(base int64) error {
	next := base
	for _, s := range p.log.Segments() {
		if s.Base == base {
			next = s.Next
		}
	}
	table := idempotence.New()
	if err := p.restore(table, base); err != nil {
		return err
	}
	var entries controlmarkers.Index
	err := p.replay(table, base, next, func(e idempotence.Ended) (err error) {
		if !e.Commit {
			entries, err = entries.Add(e.Aborted)
		}
		return err
	})
	if err != nil {
		return err
	}
	return p.txns.remake(base, entries)
}
