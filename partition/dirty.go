package partition

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"oncelog/config"
	"oncelog/log"
)

// internalTopics are those of the coordinators. They are compacted, and their active segments are rolled as soon as most of the
// log is superseded (rollEarlyLocked).
var internalTopics = map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true}

// earlyRollBytes is the least size at which an internal topic's active segment is rolled early.
const earlyRollBytes = 4 << 20

// compaction is what the cleaner knows of a partition.
type compaction struct {
	// lookAt is the last stable offset at which the cleaner may find something new to clean; guarded by Partition.mu.
	lookAt int64
	// waiting: the partition is in the cleaner's list.
	waiting atomic.Bool
	// planned: the partition will be put there at a time.
	planned atomic.Bool
	// leaving: the partition is about to move; no cleaning begins any more, and one that goes on ends.
	leaving atomic.Bool

	mu struct {
		sync.Mutex
		known       bool  // cleaned is known: the log was cleaned before
		cleaned     int64 // the first offset that isn't, as the checkpoint has it
		uncleanable error // why the cleaner leaves the log alone, for good
		dirty       dirty // as of the last look
		noSpace     bool  // the last cleaning found the disk full, and that was logged
	}
}

// dirty is what there is to clean in a log.
type dirty struct {
	from, to   int64 // from the first dirty offset to the base of the first segment that can't be cleaned
	cleanBytes int64 // of the segments below from
	bytes      int64 // of those in between
	// overdue is by how much the oldest of it is above max.compaction.lag.ms: it must be cleaned, however little it is.
	overdue time.Duration
}

// ratio is the dirty ratio, as min.cleanable.dirty.ratio means it.
func (d dirty) ratio() float64 {
	if d.bytes == 0 {
		return 0
	}
	return float64(d.bytes) / float64(d.cleanBytes+d.bytes)
}

func (d dirty) wanted(cfg *config.Topic) bool {
	return d.bytes > 0 && (d.overdue > 0 || d.ratio() > cfg.MinCleanableDirtyRatio)
}

// inspectDirty looks what there is to clean. again is when time alone may have changed that; 0 for never.
func (p *Partition) inspectDirty(now time.Time) (d dirty, again time.Duration, err error) {
	cfg := p.cfg.Load()
	if p.log == nil || p.Err() != nil || !cfg.CleanupCompact || p.compaction.leaving.Load() {
		return d, 0, nil
	}
	segments := p.log.Segments()
	if len(segments) == 1 {
		return d, 0, nil
	}
	from := p.firstDirty(cfg)
	dirtySegments := segments[:len(segments)-1]
	for len(dirtySegments) > 0 && dirtySegments[0].Next <= from {
		dirtySegments = dirtySegments[1:]
	}
	to := segments[len(segments)-1].Base
	if to, again, err = p.lagging(dirtySegments, to, cfg.MinCompactionLagMs, now); err != nil {
		return d, 0, err
	}
	overdue, soon, err := p.overdue(dirtySegments, cfg.MaxCompactionLagMs, now)
	if err != nil {
		return d, 0, err
	}
	again = sooner(again, soon)
	if d = measure(segments, from, to); !(dirty{cleanBytes: d.cleanBytes, bytes: d.bytes, overdue: overdue}).wanted(cfg) {
		return d, again, nil // not even without open transactions, which only the producers' state tells
	}
	stable := p.Offsets().LSO
	d = measure(segments, from, min(to, stable))
	d.overdue = overdue
	p.lookLater(segments, stable)
	return d, again, p.Err()
}

// firstDirty is where the cleaning begins: what the checkpoint says if that can be.
func (p *Partition) firstDirty(cfg *config.Topic) int64 {
	offset, truncated := p.log.TakeTruncated()
	c := &p.compaction
	c.mu.Lock()
	defer c.mu.Unlock()
	start, end := p.log.Start(), p.log.End()
	if truncated {
		c.mu.cleaned = min(c.mu.cleaned, offset)
	}
	switch {
	case !c.mu.known:
		return start
	case c.mu.cleaned < start, c.mu.cleaned > end:
		if !cfg.CleanupDelete || c.mu.cleaned > end {
			p.shared.logger.Warn("the cleaner begins anew at the log start", "topic", p.topic, "partition", p.index, "start", start, "checkpoint", c.mu.cleaned)
		}
		c.mu.cleaned = start
	}
	return c.mu.cleaned
}

// lagging is where the segments begin that min.compaction.lag.ms still keeps from being cleaned, at most to.
func (p *Partition) lagging(segments []log.Segment, to, lagMs int64, now time.Time) (int64, time.Duration, error) {
	if lagMs <= 0 {
		return to, 0, nil
	}
	for _, s := range segments {
		largest, err := p.log.LargestTimestamp(s.Base)
		if err != nil {
			return to, 0, err
		}
		if age := now.UnixMilli() - largest; age < lagMs {
			return s.Base, millis(lagMs - age), nil
		}
	}
	return to, 0, nil
}

// overdue is by how much the oldest of the segments is above max.compaction.lag.ms; soon is when one will be, 0 for never.
func (p *Partition) overdue(segments []log.Segment, lagMs int64, now time.Time) (by, soon time.Duration, err error) {
	if lagMs == math.MaxInt64 {
		return 0, 0, nil
	}
	for _, s := range segments {
		first, err := p.log.FirstTimestamp(s.Base)
		if err != nil {
			return 0, 0, err
		}
		if first <= 0 {
			continue
		}
		switch left := first + lagMs - now.UnixMilli(); {
		case left < 0:
			by = max(by, millis(-left))
		default:
			soon = sooner(soon, millis(left+1))
		}
	}
	return by, soon, nil
}

// sooner is the lesser of two durations of which 0 stands for never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// measure gives what lies between two offsets in whole segments; the one that holds from counts as clean and as dirty, as in Kafka.
func measure(segments []log.Segment, from, to int64) dirty {
	d := dirty{from: from, to: from}
	for _, s := range segments[:len(segments)-1] {
		if s.Base < from {
			d.cleanBytes += s.Size
		}
		if s.Next > from && s.Next <= to {
			d.bytes += s.Size
			d.to = s.Next
		}
	}
	return d
}

// lookLater has the partition looked at again when an open transaction no longer keeps a segment from being cleaned.
func (p *Partition) lookLater(segments []log.Segment, stable int64) {
	next := int64(math.MaxInt64)
	for _, s := range segments[:len(segments)-1] {
		if s.Next > stable {
			next = s.Next
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.compaction.lookAt = next
	p.publishLocked() // it may have come there meanwhile
}

// rolledLocked follows the begin of a segment.
func (p *Partition) rolledLocked(base int64) {
	if p.cfg.Load().CleanupCompact {
		p.compaction.lookAt = min(p.compaction.lookAt, base)
	}
}

// rollEarlyLocked rolls an internal topic's active segment long before segment.bytes when it is larger than all that is before it:
// most of the log is dirty then, and a coordinator that loads it reads what few keys need, not what was ever written. As each such segment
// is as large as the log was, a log in which nothing is superseded is rolled, and cleaned, a few times more and no oftener.
func (p *Partition) rollEarlyLocked(now time.Time) error {
	cfg := p.cfg.Load()
	active := p.log.ActiveSize()
	if active < earlyRollBytes || !internalTopics[p.topic] || !cfg.CleanupCompact || p.shared.cleaner == nil {
		return nil
	}
	if all := p.log.Size(); float64(active) <= max(cfg.MinCleanableDirtyRatio, 0.5)*float64(all) {
		return nil
	}
	err := p.rollLocked(now)
	if err == nil {
		p.syncSoon()
	}
	return err
}
