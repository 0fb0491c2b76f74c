package partition

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"oncelog/config"
	"oncelog/log"
)

// cleaner compacts the logs of a set. Partitions tell it when there may be something to clean (touch): a segment was begun and the last
// stable offset has passed its base, the settings changed, a time has come. It looks at these, at most every log.cleaner.backoff.ms, and
// cleans the dirtiest first until none is dirty enough. Between that its goroutines sleep: an idle broker polls nothing.
//
// mu is taken after all locks of a partition, and none under it.
type cleaner struct {
	set      *Set
	throttle throttle
	figures  cleanerFigures
	wake     chan struct{} // capacity 1: there is something to look at; a full one says it already
	looking  sync.Mutex    // held to look; before all other locks

	mu struct {
		sync.Mutex
		touched []*Partition         // to be looked at
		ready   map[*Partition]dirty // to be cleaned
		running map[*Partition]bool  // being cleaned
		ended   chan struct{}        // closed when the next cleaning has ended
		resting bool                 // until log.cleaner.backoff.ms is over
		workers []context.CancelFunc
	}
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// startCleaner begins to clean a set whose partitions are loaded. It gives nil if log.cleaner.enable is off; all methods do nothing then.
func startCleaner(s *Set, cfg *config.Broker) *cleaner {
	if !cfg.Bool("log.cleaner.enable") {
		return nil
	}
	c := &cleaner{set: s, wake: make(chan struct{}, 1)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.mu.ready, c.mu.running = map[*Partition]dirty{}, map[*Partition]bool{}
	c.mu.ended = make(chan struct{})
	c.mu.resting = true
	c.rest()
	return c
}

// cleanedDelay is how long the checkpoint of what is clean may lag behind: cleanings of many logs share one write.
const cleanedDelay = time.Second

// planCleaning has all compacted logs looked at, a while after the start.
func (s *Set) planCleaning() {
	s.shared.cleaner.configure(s.broker())
	for p := range s.All() {
		if p.log != nil && p.cfg.Load().CleanupCompact {
			s.shared.cleaner.touch(p)
		}
	}
}

// checkpointCleaned writes up to where each log is clean.
func (s *Set) checkpointCleaned() error { return s.cleaned.write(s.writeCleaned) }

func (s *Set) writeCleaned() error {
	offsets := map[key]int64{}
	for p := range s.All() {
		p.compaction.mu.Lock()
		if p.compaction.mu.known {
			offsets[p.key()] = p.compaction.mu.cleaned
		}
		p.compaction.mu.Unlock()
	}
	if len(offsets) == 0 && len(s.checkpoints.kept.cleaner) == 0 && !s.cleanedWritten {
		return nil
	}
	s.cleanedWritten = true
	return s.writeCheckpoint(cleanerFile, offsets)
}

func (c *compaction) wasCleaned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.known
}

// configure follows the broker's settings.
func (c *cleaner) configure(cfg *config.Broker) {
	if c == nil {
		return
	}
	c.throttle.set(cfg.Double("log.cleaner.io.max.bytes.per.second"))
	threads := int(cfg.Int("log.cleaner.threads"))
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.mu.workers) > threads {
		last := len(c.mu.workers) - 1
		c.mu.workers[last]()
		c.mu.workers = c.mu.workers[:last]
	}
	for len(c.mu.workers) < threads && c.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		c.mu.workers = append(c.mu.workers, cancel)
		c.running.Go(func() { c.work(ctx) })
	}
}

// close ends a cleaning that is going on, and the goroutines.
func (c *cleaner) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.running.Wait()
}

// touch has a partition looked at.
func (c *cleaner) touch(p *Partition) {
	if c == nil || p.compaction.waiting.Load() || p.compaction.waiting.Swap(true) {
		return
	}
	c.mu.Lock()
	c.mu.touched = append(c.mu.touched, p)
	resting := c.mu.resting
	c.mu.Unlock()
	if !resting {
		c.poke()
	}
}

func (c *cleaner) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// touchLater has a partition looked at when a time has passed. One plan at a time: each look makes a new one.
func (c *cleaner) touchLater(p *Partition, delay time.Duration) {
	if p.compaction.planned.Swap(true) {
		return
	}
	c.set.shared.schedule.after(delay, func(time.Time) {
		p.compaction.planned.Store(false)
		c.touch(p)
	})
}

// rest lets log.cleaner.backoff.ms pass before the next look.
func (c *cleaner) rest() {
	c.set.shared.schedule.after(millis(c.set.broker().Int("log.cleaner.backoff.ms")), func(time.Time) {
		c.mu.Lock()
		c.mu.resting = false
		more := len(c.mu.touched) > 0
		c.mu.Unlock()
		if more {
			c.poke()
		}
	})
}

// work is a goroutine of the cleaner.
func (c *cleaner) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			c.poke() // what it was woken for is another's now
			return
		case <-c.wake:
		}
		for ctx.Err() == nil {
			c.look(time.Now())
			p, d, ok := c.take()
			if !ok {
				break
			}
			c.clean(ctx, p, d, time.Now())
		}
		c.mu.Lock()
		resting := c.mu.resting
		c.mu.resting = true
		c.mu.Unlock()
		if !resting {
			c.rest()
		}
	}
}

// look sees which of the touched partitions are dirty enough.
func (c *cleaner) look(now time.Time) {
	c.looking.Lock()
	defer c.looking.Unlock()
	c.mu.Lock()
	touched := c.mu.touched
	c.mu.touched = nil
	c.mu.Unlock()
	c.figures.looked(now)
	for _, p := range touched {
		p.compaction.waiting.Store(false)
		p.compaction.mu.Lock()
		skip := p.compaction.mu.uncleanable != nil
		p.compaction.mu.Unlock()
		c.mu.Lock()
		delete(c.mu.ready, p) // nobody may begin while it is looked at
		skip = skip || c.mu.running[p]
		c.mu.Unlock()
		if skip {
			continue // who cleans it has it looked at again
		}
		d, again, err := p.inspectDirty(now)
		if err != nil {
			c.failed(p, err)
			continue
		}
		p.compaction.mu.Lock()
		p.compaction.mu.dirty = d
		p.compaction.mu.Unlock()
		if d.wanted(p.cfg.Load()) {
			c.mu.Lock()
			c.mu.ready[p] = d
			c.mu.Unlock()
		}
		if again > 0 {
			c.touchLater(p, again)
		}
	}
}

// take gives the dirtiest partition.
func (c *cleaner) take() (dirtiest *Partition, most dirty, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, d := range c.mu.ready {
		if p.compaction.leaving.Load() {
			delete(c.mu.ready, p)
			continue
		}
		if dirtiest == nil || d.ratio() > most.ratio() {
			dirtiest, most = p, d
		}
	}
	if dirtiest == nil {
		return nil, most, false
	}
	delete(c.mu.ready, dirtiest)
	c.mu.running[dirtiest] = true
	if len(c.mu.ready) > 0 {
		c.poke() // for the other goroutines
	}
	return dirtiest, most, true
}

// clean cleans one partition once.
func (c *cleaner) clean(ctx context.Context, p *Partition, d dirty, now time.Time) {
	end, err := c.cleanOnce(ctx, p, d, now)
	p.compaction.mu.Lock()
	if err == nil {
		p.compaction.mu.known, p.compaction.mu.cleaned, p.compaction.mu.noSpace = true, end, false
	}
	p.compaction.mu.Unlock()
	c.mu.Lock()
	delete(c.mu.running, p)
	close(c.mu.ended)
	c.mu.ended = make(chan struct{})
	c.mu.Unlock()
	if err != nil {
		c.failed(p, err)
		return
	}
	c.touch(p)
	c.set.shared.cleaned.ring(&c.set.shared.schedule)
}

func (c *cleaner) cleanOnce(ctx context.Context, p *Partition, d dirty, now time.Time) (end int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	if err := c.mark(p, d); err != nil {
		return 0, err
	}
	run := c.newCleaning(ctx, p, d, now.UnixMilli())
	end, err = run.run()
	took := time.Since(now)
	c.figures.ran(run, took)
	if err != nil {
		return 0, err
	}
	attrs := []any{"topic", p.topic, "partition", p.index, "clean", end, "keys", run.keys.count, "read", run.read, "written", run.written,
		"size", p.log.Size(), "took", took.Round(time.Millisecond)}
	if run.keyless > 0 {
		attrs = append(attrs, "without key", run.keyless)
	}
	p.shared.logger.Info("cleaned", attrs...)
	return end, nil
}

func (c *cleaner) newCleaning(ctx context.Context, p *Partition, d dirty, nowMillis int64) *cleaning {
	b := c.set.broker()
	threads := max(1, b.Int("log.cleaner.threads"))
	return &cleaning{
		dirty: d, p: p, ctx: ctx, cfg: p.cfg.Load(), now: nowMillis, pace: c.throttle.wait,
		io:   int(b.Int("log.cleaner.io.buffer.size") / threads / 2),
		keys: newOffsetMap(b.Int("log.cleaner.dedupe.buffer.size")/threads, b.Double("log.cleaner.io.buffer.load.factor")),
	}
}

// leave ends what the cleaner does with a partition, for good.
func (c *cleaner) leave(p *Partition) {
	p.compaction.leaving.Store(true)
	for c != nil {
		c.mu.Lock()
		running, ended := c.mu.running[p], c.mu.ended
		c.mu.Unlock()
		if !running {
			return
		}
		<-ended
	}
}

// mark notes in the checkpoint that a log is going to be cleaned for the first time: from now on it may have gaps, and recovery has to know
// that whatever the topic's policy will be.
func (c *cleaner) mark(p *Partition, d dirty) error {
	p.compaction.mu.Lock()
	known := p.compaction.mu.known
	if !known {
		p.compaction.mu.known, p.compaction.mu.cleaned = true, d.from
	}
	p.compaction.mu.Unlock()
	if known {
		return nil
	}
	err := c.set.checkpointCleaned()
	if err != nil {
		p.compaction.mu.Lock()
		p.compaction.mu.known = false
		p.compaction.mu.Unlock()
	}
	return err
}

// failed deals with a cleaning that came to nothing. A log that can't be cleaned is left alone from then on.
func (c *cleaner) failed(p *Partition, err error) {
	logger := p.shared.logger.With("topic", p.topic, "partition", p.index)
	switch {
	case c.ctx.Err() != nil || p.Err() != nil:
	case errors.Is(err, log.ErrFailed):
		_ = p.fail(err)
	case errors.Is(err, errStopped):
		c.touch(p)
	case noSpace(err):
		p.compaction.mu.Lock()
		said := p.compaction.mu.noSpace
		p.compaction.mu.noSpace = true
		p.compaction.mu.Unlock()
		if !said {
			logger.Warn("no space left to clean", "err", err)
		}
		c.touchLater(p, millis(c.set.broker().Int("log.cleaner.backoff.ms")))
	default:
		p.compaction.mu.Lock()
		p.compaction.mu.uncleanable = err
		p.compaction.mu.Unlock()
		logger.Error("log can't be cleaned, the cleaner leaves it alone until the next start", "err", err)
	}
}
