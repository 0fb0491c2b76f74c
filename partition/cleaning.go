package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"oncelog/config"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// errStopped ends a cleaning that is no longer wanted: the partition, its policy or the cleaner has gone.
var errStopped = errors.New("cleaning stopped")

// errMapFull ends the building of an offset map.
var errMapFull = errors.New("offset map is full")

// cleaning is one cleaning of one partition. It belongs to one goroutine.
//
// It goes by Kafka's rules (KIP-98, KIP-534). First the last offset of each key in the dirty part goes into a map. Then all segments up to where
// the map ends are rewritten, in groups that become one segment: a record stays if nothing later has its key, a tombstone until its batch's delete
// horizon has passed. Aborted records go at once. A marker gets its horizon when no batch of its transaction is left, and goes when that has passed. A
// batch without records stays as a header if it has its producer's last sequence, or the last offset below the high watermark.
type cleaning struct {
	dirty
	p    *Partition
	ctx  context.Context
	cfg  *config.Topic
	now  int64                                      // milliseconds
	pace func(ctx context.Context, bytes int) error // the throttle
	io   int                                        // bytes written at once
	keys *offsetMap

	truncations int64 // of the log, when the cleaning began
	watermark   int64
	last        map[int64]lastRecord // of the producers with state, by id
	txns        *cleanedTxns
	kept        []uint64          // of the batch in hand, a bit for each record that stays
	sifted      []byte            // the batch in hand written anew
	ended       map[int64]int64   // offset of the last marker that the group in hand lost, by producer
	open        map[int64][]int64 // producers with an open transaction by a snapshot's offset; nil until it is needed

	read, written int64 // bytes
	keyless       int64 // records without a key, which no compacted topic should have
}

// lastRecord is what has to stay in the log of a producer with state: the batch that holds its last sequence, or if its last epoch has none
// the marker of that epoch.
type lastRecord struct {
	offset int64 // -1 for none
	epoch  int16
}

// run cleans. The log is clean below the offset that it returns.
func (c *cleaning) run() (end int64, err error) {
	c.truncations = c.p.log.Truncations()
	if err := c.p.txns.flush(); err != nil {
		return c.from, err
	}
	if err := c.lastRecords(); err != nil {
		return c.from, err
	}
	if err := c.buildMap(); err != nil {
		return c.from, err
	}
	end = c.keys.latest + 1
	c.txns = newCleanedTxns()
	for _, g := range groups(c.p.log.Segments(), end, c.to, c.cfg) {
		if err := c.rewrite(g); err != nil {
			return c.from, err
		}
	}
	return end, nil
}

// lastRecords takes up what must stay because of the producers, and the high watermark.
func (c *cleaning) lastRecords() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if err := c.p.loadLocked(); err != nil {
		return err
	}
	n, _ := c.p.mu.table.Len()
	c.last = make(map[int64]lastRecord, n)
	for e := range c.p.mu.table.Entries() {
		c.last[e.ProducerID] = lastRecord{e.LastOffset, e.Epoch}
	}
	c.p.view.Lock()
	c.watermark = c.p.view.offsets.HW
	c.p.view.Unlock()
	return nil
}

// step waits as the throttle says, and ends the cleaning if it isn't wanted any more.
func (c *cleaning) step(bytes int) error {
	switch {
	case c.ctx.Err() != nil, c.p.Err() != nil, c.p.compaction.leaving.Load(), !c.p.cfg.Load().CleanupCompact, c.p.log.Truncations() != c.truncations:
		return errStopped
	case bytes == 0:
		return nil
	}
	return c.pace(c.ctx, bytes)
}

// buildMap reads the dirty part.
func (c *cleaning) buildMap() error {
	aborted, err := c.p.txns.collect(nil, c.from, c.to)
	if err != nil {
		return err
	}
	txns := newCleanedTxns()
	txns.expect(aborted)
	for b, err := range c.p.log.Batches(c.from) {
		if err != nil {
			return c.readError(err)
		}
		h := b.Header()
		if h.BaseOffset >= c.to {
			break
		}
		if err := c.step(len(b)); err != nil {
			return err
		}
		c.read += int64(len(b))
		err := c.mapBatch(txns, b, &h)
		if err == errMapFull {
			return nil
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", h.BaseOffset, err)
		}
		c.keys.latest = h.LastOffset()
	}
	c.keys.latest = c.to - 1
	return nil
}

// mapBatch notes the keys of a batch.
func (c *cleaning) mapBatch(txns *cleanedTxns, b protocol.Batch, h *protocol.BatchHeader) error {
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if h.Control() {
		_, err := txns.control(b, h)
		return err
	}
	if txns.data(h) {
		return nil
	}
	return b.WalkKeys(func(r protocol.RecordInfo, id *protocol.KeyID) error {
		offset := h.BaseOffset + int64(r.OffsetDelta)
		if r.NullKey || offset < c.from {
			return nil
		}
		if !c.keys.put(id, offset) {
			return errMapFull
		}
		c.keys.latest = offset
		return nil
	})
}

// readError tells an error of reading a log that has gone, or was trimmed, from one of the disk.
func (c *cleaning) readError(err error) error {
	if errors.Is(err, log.ErrOutOfRange) || errors.Is(err, log.ErrClosed) || c.p.Err() != nil {
		return errStopped
	}
	return err
}

// groups are the segments below end, put together so that each group fits into one segment; those at or above to don't count.
func groups(segments []log.Segment, end, to int64, cfg *config.Topic) (list [][]log.Segment) {
	var sum log.Segment
	for _, s := range segments[:len(segments)-1] {
		if s.Base >= end || s.Next > to {
			break
		}
		n := len(list)
		if n > 0 && sum.Size+s.Size <= int64(cfg.SegmentBytes) && sum.OffsetIndexSize+s.OffsetIndexSize <= int64(cfg.SegmentIndexBytes) &&
			sum.TimeIndexSize+s.TimeIndexSize <= int64(cfg.SegmentIndexBytes) && (s.Size == 0 || s.Next-1-sum.Base <= 1<<31-1) {
			list[n-1] = append(list[n-1], s)
			sum.Size, sum.OffsetIndexSize, sum.TimeIndexSize = sum.Size+s.Size, sum.OffsetIndexSize+s.OffsetIndexSize, sum.TimeIndexSize+s.TimeIndexSize
			continue
		}
		list, sum = append(list, []log.Segment{s}), s
	}
	return list
}

// rewrite makes one segment of a group.
func (c *cleaning) rewrite(group []log.Segment) error {
	from, to := group[0].Base, group[len(group)-1].Next
	aborted, err := c.p.txns.collect(nil, from, to)
	if err != nil {
		return err
	}
	c.txns.expect(aborted)
	c.txns.index, c.ended = nil, map[int64]int64{}
	done, err := c.p.log.Rewrite(log.Rewriting{
		From: from, To: to, Keep: c.keep, Finish: func() ([]byte, bool, error) { return c.finish(from, to) }, Pace: c.step,
		IndexIntervalBytes: c.cfg.IndexIntervalBytes, BufferBytes: c.io,
	})
	switch {
	case errors.Is(err, log.ErrReplaced), errors.Is(err, log.ErrClosed):
		return errStopped
	case err != nil:
		return err
	}
	c.read, c.written = c.read+done.Read, c.written+done.Written
	if !done.Changed {
		return nil
	}
	c.p.txns.rewritten(from, to, len(c.txns.index) > 0)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	var errs []error
	for _, base := range done.Gone {
		errs = append(errs, c.p.dropSnapshot(base))
	}
	return errors.Join(errs...)
}

// finish gives the transaction index of the group's new segment, and sees to the snapshots.
func (c *cleaning) finish(from, to int64) (index []byte, differs bool, err error) {
	old, err := c.p.txns.entriesIn(from, to)
	if err != nil {
		return nil, false, err
	}
	for _, a := range c.txns.index {
		index = a.Append(index)
	}
	if len(c.ended) > 0 {
		err = c.closeInSnapshots()
	}
	return index, !slices.Equal(old, c.txns.index), err
}

// keep decides about one batch.
func (c *cleaning) keep(b protocol.Batch) (protocol.Batch, error) {
	h := b.Header()
	discard, drop := false, false
	if h.Control() {
		var err error
		if discard, err = c.txns.control(b, &h); err != nil {
			return nil, err
		}
		drop = discard && h.HasDeleteHorizon() && h.BaseTimestamp <= c.now
	} else {
		drop = c.txns.data(&h)
	}
	hold := h.LastOffset()+1 == c.watermark || h.ProducerID >= 0 && c.isLast(&h)
	switch {
	case h.NumRecords == 0 && hold:
		return b, nil
	case (drop || h.NumRecords == 0) && !hold:
		c.lose(&h)
		return nil, nil
	case drop:
		c.lose(&h)
		return c.sift(b, func(int) bool { return false }, 0)
	case h.Control():
		if discard && !h.HasDeleteHorizon() {
			return c.sift(b, func(int) bool { return true }, c.horizon())
		}
		return b, nil
	}
	return c.keepRecords(b, &h, hold)
}

// lose notes a marker that the log won't have any more.
func (c *cleaning) lose(h *protocol.BatchHeader) {
	if h.Control() {
		c.ended[h.ProducerID] = h.LastOffset()
	}
}

func (c *cleaning) isLast(h *protocol.BatchHeader) bool {
	last, ok := c.last[h.ProducerID]
	if !ok {
		return false
	}
	if last.offset >= 0 {
		return h.LastOffset() == last.offset
	}
	return h.Control() && h.ProducerEpoch == last.epoch
}

// keepRecords decides about the records of a batch of data.
func (c *cleaning) keepRecords(b protocol.Batch, h *protocol.BatchHeader, hold bool) (protocol.Batch, error) {
	c.kept = c.kept[:0]
	kept, tombstones := 0, false
	expired := h.HasDeleteHorizon() && h.BaseTimestamp <= c.now
	decide := func(r protocol.RecordInfo, id *protocol.KeyID) error {
		if r.Index%64 == 0 {
			c.kept = append(c.kept, 0)
		}
		if offset := h.BaseOffset + int64(r.OffsetDelta); offset <= c.keys.latest {
			if r.NullKey {
				c.keyless++
				return nil
			}
			if offset < c.keys.get(id) || r.NullValue && expired {
				return nil
			}
		}
		c.kept[r.Index/64] |= 1 << (r.Index % 64)
		kept++
		tombstones = tombstones || r.NullValue
		return nil
	}
	if err := b.WalkKeys(decide); err != nil {
		return nil, fmt.Errorf("%w: %w", log.ErrCorrupt, err)
	}
	horizon := int64(0)
	if tombstones && !h.HasDeleteHorizon() {
		horizon = c.horizon()
	}
	switch {
	case kept == 0 && !hold:
		return nil, nil
	case kept == int(h.NumRecords) && horizon == 0:
		return b, nil
	}
	return c.sift(b, func(i int) bool { return c.kept[i/64]>>(i%64)&1 == 1 }, horizon)
}

func (c *cleaning) horizon() int64 { return c.now + c.cfg.DeleteRetentionMs }

func (c *cleaning) sift(b protocol.Batch, keep func(int) bool, horizon int64) (protocol.Batch, error) {
	sifted, err := b.Sift(c.sifted[:0], protocol.Sifting{Keep: keep, Horizon: horizon})
	if err == nil {
		c.sifted = sifted
	}
	return sifted, err
}

// closeInSnapshots ends, in the snapshots of producers, the transactions whose markers the log is about to lose: a replay from there would wait for
// them for ever. That is true whether the rewriting succeeds or not, as no batch of these transactions is left.
func (c *cleaning) closeInSnapshots() error {
	if err := c.findOpen(); err != nil {
		return err
	}
	for offset, producers := range c.open {
		var closed []int64
		for _, id := range producers {
			if marker, lost := c.ended[id]; lost && marker >= offset {
				closed = append(closed, id)
			}
		}
		if len(closed) == 0 {
			continue
		}
		if err := c.closeInSnapshot(offset, closed); err != nil {
			return err
		}
		c.open[offset] = slices.DeleteFunc(producers, func(id int64) bool { return slices.Contains(closed, id) })
	}
	return nil
}

// findOpen reads which transactions the snapshots of the part that is cleaned say to be open.
func (c *cleaning) findOpen() error {
	if c.open != nil {
		return nil
	}
	c.p.mu.Lock()
	offsets := slices.Clone(c.p.mu.snapshots)
	c.p.mu.Unlock()
	c.open = map[int64][]int64{}
	for _, offset := range offsets {
		if offset > c.to {
			break
		}
		entries, _, err := c.p.parseSnapshot(offset)
		if entries == nil && isNotExist(err) {
			continue // retention took it
		}
		for _, e := range entries {
			if e.TxnFirstOffset >= 0 {
				c.open[offset] = append(c.open[offset], e.ProducerID)
			}
		}
	}
	return nil
}

// closeInSnapshot writes a snapshot without the open transactions of some producers, durably.
func (c *cleaning) closeInSnapshot(offset int64, producers []int64) error {
	entries, windows, err := c.p.parseSnapshot(offset)
	if entries == nil {
		if isNotExist(err) {
			return nil
		}
		return err
	}
	for i := range entries {
		if slices.Contains(producers, entries[i].ProducerID) {
			entries[i].TxnFirstOffset = -1
		}
	}
	return c.p.replaceSnapshot(offset, entries, windows)
}

// replaceSnapshot writes a snapshot anew, durably.
func (p *Partition) replaceSnapshot(offset int64, entries []idempotence.Entry, windows []idempotence.Window) error {
	table := idempotence.New()
	table.Restore(entries, windows, p.shared.opened.UnixMilli())
	snapshot := table.AppendSnapshot(nil)
	if err := vfs.WriteFileAtomic(p.shared.fsys, p.path(offset, extWindow), table.AppendWindows(nil, snapshot)); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(p.shared.fsys, p.path(offset, extSnapshot), snapshot)
}
