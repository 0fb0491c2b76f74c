package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/protocol"
)

// Options of a Host. Topic and New are needed.
type Options[M Machine] struct {
	Topic string // the internal topic, for logs and metrics
	// New makes the empty machine of a partition that this node leads at epoch.
	New func(partition, epoch int32) M
	// Effects gets the effects of committed operations, in order, one call at a time per shard. It must not wait for
	// the shard; it may call Do.
	Effects func(s *Shard[M], effects []any)
	// LoadFailed is what Get says of a partition whose log can't be understood; nil means kerr.NotCoordinator.
	LoadFailed error
	Codec      protocol.Codec // of the batches written
	Logger     *slog.Logger   // nil: slog.Default()
	Registerer prometheus.Registerer
}

// Host is the shards of one internal topic that this node leads.
type Host[M Machine] struct {
	// Immutable.
	options Options[M]
	logger  *slog.Logger
	metrics *metrics
	loads   chan struct{} // one token per load at work
	loaders sync.WaitGroup

	mu      sync.Mutex
	hosted  map[int32]*hosted[M] // guarded by mu
	changed chan struct{}        // guarded by mu: closed and replaced when hosted or a state in it changes
	retired []*Shard[M]          // guarded by mu: ended, but somebody may still be at work on them
	closed  bool                 // guarded by mu
}

// hosted is one partition that this node leads.
type hosted[M Machine] struct {
	shard *Shard[M]
	state loadState // guarded by the host's mu
}

// sound tells whether nothing has gone wrong with the partition. The host's mu is held.
func (e *hosted[M]) sound() bool { return e.state != loadFailed && !e.shard.Ended() }

type loadState int8

const (
	loading loadState = iota
	loaded
	loadFailed
)

// NewHost makes a host that leads nothing yet.
func NewHost[M Machine](o Options[M]) *Host[M] {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.LoadFailed == nil {
		o.LoadFailed = kerr.NotCoordinator
	}
	if o.Effects == nil {
		o.Effects = func(*Shard[M], []any) {}
	}
	h := &Host[M]{
		options: o,
		logger:  o.Logger.With(slog.String("topic", o.Topic)),
		metrics: newMetrics(o.Registerer, o.Topic),
		loads:   make(chan struct{}, runtime.GOMAXPROCS(0)),
		hosted:  make(map[int32]*hosted[M]),
		changed: make(chan struct{}),
	}
	return h
}

// Load starts to load a partition that this node leads at epoch, in place of an older epoch of it, and returns. A newer
// epoch that is here already stays, and so does the same one unless it has failed.
func (h *Host[M]) Load(partition, epoch int32, log Log) {
	s := &Shard[M]{
		Partition: partition,
		Epoch:     epoch,
		log:       log,
		codec:     h.options.Codec,
		logger:    h.logger.With(slog.Int("partition", int(partition)), slog.Int("epoch", int(epoch))),
		effects:   h.options.Effects,
		stopped:   make(chan struct{}),
	}
	s.idle.L = &s.mu
	h.mu.Lock()
	old := h.hosted[partition]
	if h.closed || old != nil && (old.shard.Epoch > epoch || old.shard.Epoch == epoch && old.sound()) {
		h.mu.Unlock()
		return
	}
	entry := &hosted[M]{shard: s}
	h.hosted[partition] = entry
	h.changedLocked()
	h.loaders.Add(1)
	h.mu.Unlock()
	if old != nil {
		h.retire(old.shard)
	}
	go h.load(entry)
}

// load brings one shard up; it gives up when the shard is stopped.
func (h *Host[M]) load(entry *hosted[M]) {
	defer h.loaders.Done()
	s := entry.shard
	select {
	case h.loads <- struct{}{}:
		defer func() { <-h.loads }()
	case <-s.stopped:
		return
	}
	start := time.Now()
	err := h.replayLog(s)
	if s.Ended() {
		return
	}
	state := loaded
	if err != nil {
		state = loadFailed
		s.logger.Error("coordinator partition can't be loaded", slog.Any("error", err))
	}
	h.metrics.loadSeconds.Observe(time.Since(start).Seconds())
	if err == nil {
		s.mu.Lock()
		s.enqueueLocked(queued[M]{wake: wakeRecover}) // before the first caller
	}
	h.mu.Lock()
	entry.state = state
	h.changedLocked()
	h.mu.Unlock()
	if err == nil {
		s.run(-1)
	}
}

// replayLog makes the machine of s from the log.
func (h *Host[M]) replayLog(s *Shard[M]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	s.machine = h.options.New(s.Partition, s.Epoch)
	for b, err := range s.log.Batches(0) {
		if err != nil {
			return err
		}
		if s.Ended() {
			return nil
		}
		if err := replayStored(s.machine, b); err != nil {
			return err
		}
		s.end = b.Header().LastOffset() + 1
	}
	return nil
}

// Unload drops a partition, if it is here at epoch or an older one. Whoever waits for it gets NOT_COORDINATOR.
func (h *Host[M]) Unload(partition, epoch int32) {
	h.mu.Lock()
	entry := h.hosted[partition]
	if entry == nil || entry.shard.Epoch > epoch {
		h.mu.Unlock()
		return
	}
	delete(h.hosted, partition)
	h.changedLocked()
	h.mu.Unlock()
	h.retire(entry.shard)
}

// retire ends a shard, and remembers it as long as somebody works on it.
func (h *Host[M]) retire(s *Shard[M]) {
	s.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired = slices.DeleteFunc(h.retired, (*Shard[M]).rested)
	h.retired = append(h.retired, s)
}

func (h *Host[M]) changedLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
	n := 0
	for _, e := range h.hosted {
		if e.state == loaded {
			n++
		}
	}
	h.metrics.loaded.Set(float64(n))
}

// Get gives the shard of a partition. It fails with kerr.CoordinatorLoadInProgress while the partition is loaded, and
// with kerr.NotCoordinator if this node doesn't lead it.
func (h *Host[M]) Get(partition int32) (*Shard[M], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.getLocked(partition)
}

func (h *Host[M]) getLocked(partition int32) (*Shard[M], error) {
	entry := h.hosted[partition]
	switch {
	case entry == nil:
		return nil, kerr.NotCoordinator
	case entry.state == loading:
		return nil, kerr.CoordinatorLoadInProgress
	case entry.state == loadFailed:
		return nil, h.options.LoadFailed
	}
	return entry.shard, nil
}

// AwaitLoaded waits until a partition is loaded or has failed to, and at most as long as ctx. It is for a partition that
// this node is about to lead: while it is not here, it is waited for too.
func (h *Host[M]) AwaitLoaded(ctx context.Context, partition int32) error {
	for {
		h.mu.Lock()
		_, err := h.getLocked(partition)
		changed := h.changed
		entry := h.hosted[partition]
		final := h.closed || entry != nil && entry.state != loading
		h.mu.Unlock()
		if final {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Shards gives the loaded shards, ascending by partition, and whether Get says of any partition that it is being loaded.
func (h *Host[M]) Shards() (shards []*Shard[M], more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.hosted {
		shard, err := h.getLocked(p)
		if err == nil {
			shards = append(shards, shard)
		}
		more = more || errors.Is(err, kerr.CoordinatorLoadInProgress)
	}
	slices.SortFunc(shards, func(a, b *Shard[M]) int { return int(a.Partition) - int(b.Partition) })
	return shards, more
}

// Close drops all partitions and waits for every goroutine of the host.
func (h *Host[M]) Close() {
	h.mu.Lock()
	all := h.retired
	for _, e := range h.hosted {
		all = append(all, e.shard)
	}
	h.hosted, h.retired = make(map[int32]*hosted[M]), nil
	h.closed = true
	h.changedLocked()
	h.mu.Unlock()
	for _, s := range all {
		s.stop()
	}
	h.loaders.Wait()
	for _, s := range all {
		s.wait()
	}
}
