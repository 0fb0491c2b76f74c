package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/partition"
)

// How long the reconciler waits before it tries again what a disk refused. The pause doubles.
const (
	reconcilePauseMin = time.Second
	reconcilePauseMax = time.Minute
)

// reconciler makes this node be what the metadata says: it compares each new image with the one before and creates, leads and deletes replicas,
// loads and unloads coordinators, and hands on dynamic configs. One goroutine does that, after a first round that the start waits for.
//
// Nothing else starts or ends a replica or a coordinator, but for a replica's move to another log directory, which it is told of.
type reconciler struct {
	// Immutable.
	nodeID   int32
	images   imageSource
	replicas *partition.Dirs
	hooks    reconcileHooks
	log      *slog.Logger

	// Owned by the goroutine.
	image  *cluster.Image  // what has been made true, but for failed
	failed map[string]bool // topics that a disk refused something of

	mu      sync.Mutex
	done    int64         // index of image
	changed chan struct{} // closed when done grows
	again   []replicaName // replicas that others have taken the place of

	poke chan struct{} // capacity 1: again has something; a full one says it already

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// imageSource is the controller, as the reconciler sees it.
type imageSource interface {
	Image() *cluster.Image
	Changed() <-chan struct{}
}

// reconcileHooks are what changes with the metadata beside replicas. All are called from one goroutine.
type reconcileHooks struct {
	load          func(topic string, index, epoch int32, p *partition.Partition)
	unload        func(topic string, index, epoch int32)
	topicsDeleted func(names []string)
	setConfig     func(clusterDefault, perBroker map[string]string) *config.Broker
	topicConfig   func(name string) *config.Topic
	assign        func([]cluster.Placement) error // tells the metadata where replicas are
}

func newReconciler(nodeID int32, images imageSource, replicas *partition.Dirs, hooks reconcileHooks, log *slog.Logger) *reconciler {
	return &reconciler{
		nodeID: nodeID, images: images, replicas: replicas, hooks: hooks, log: log,
		failed: map[string]bool{}, changed: make(chan struct{}), poke: make(chan struct{}, 1),
	}
}

// start makes the present image true and then follows it until stop.
func (r *reconciler) start() {
	im := r.images.Image()
	r.removeStrays(im)
	if found := r.misplaced(im); len(found) > 0 {
		r.log.Info("replicas are in other log directories than before", slog.Int("replicas", len(found)))
		if err := r.hooks.assign(found); err != nil {
			r.log.Error("metadata does not know where replicas are", slog.Any("error", err))
		}
		im = r.images.Image()
	}
	r.applyConfigs(nil, im, allConfigs(im))
	r.applyTopics(nil, im, topicNames(im))
	r.finish(im)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.ended.Go(func() { r.run(ctx) })
}

func (r *reconciler) stop() {
	r.cancel()
	r.ended.Wait()
}

func (r *reconciler) run(ctx context.Context) {
	pause := reconcilePauseMin
	var retry <-chan time.Time
	for {
		changed := r.images.Changed()
		if im := r.images.Image(); im.Index != r.image.Index {
			r.follow(im)
			continue
		}
		if len(r.failed) == 0 {
			retry, pause = nil, reconcilePauseMin
		} else if retry == nil {
			retry, pause = time.After(pause), min(2*pause, reconcilePauseMax)
		}
		select {
		case <-changed:
		case <-retry:
			retry = nil
			r.retryFailed()
		case <-r.poke:
			r.lookAgain()
		case <-ctx.Done():
			return
		}
	}
}

// follow makes an image true, given that the one before is.
func (r *reconciler) follow(im *cluster.Image) {
	old := r.image
	delta, known := im.Since(old)
	if !known {
		delta.Topics = append(topicNames(old), topicNames(im)...)
		delta.Configs = allConfigs(im)
	}
	r.applyConfigs(old, im, delta.Configs)
	slices.Sort(delta.Topics)
	r.applyTopics(old, im, slices.Compact(delta.Topics))
	r.finish(im)
}

func (r *reconciler) finish(im *cluster.Image) {
	r.image = im
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = im.Index
	close(r.changed)
	r.changed = make(chan struct{})
}

// await returns once what the image of that index says holds on this node, or with ctx's error.
func (r *reconciler) await(ctx context.Context, index int64) error {
	for {
		r.mu.Lock()
		done, changed := r.done, r.changed
		r.mu.Unlock()
		if done >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryFailed tries again all topics that a disk refused something of.
func (r *reconciler) retryFailed() {
	names := slices.Sorted(maps.Keys(r.failed))
	clear(r.failed)
	r.applyTopics(r.image, r.image, names)
}

func topicNames(im *cluster.Image) []string {
	names := make([]string, 0, im.NumTopics())
	for t := range im.Topics() {
		names = append(names, t.Name)
	}
	return names
}

// removeStrays puts aside what lies in the log directory and is no replica of this node's: a topic that was deleted while the node was down, or
// that has been made anew.
func (r *reconciler) removeStrays(im *cluster.Image) {
	var strays []*partition.Partition
	for p := range r.replicas.All() {
		t := im.Topic(p.Topic())
		// One whose directory doesn't say which topic it is of is what the metadata says, if it says anything.
		nameless := p.TopicID() == [16]byte{}
		if t == nil || t.ID != p.TopicID() && !nameless || int(p.Index()) >= len(t.Partitions) || !slices.Contains(t.Partitions[p.Index()].Replicas, r.nodeID) {
			strays = append(strays, p)
		}
	}
	for _, p := range strays {
		r.stray(p)
	}
}

func (r *reconciler) stray(p *partition.Partition) {
	r.log.Warn("replica is not in the metadata, it is put aside", slog.String("topic", p.Topic()), slog.Int("partition", int(p.Index())))
	if err := r.replicas.Stray(p); err != nil {
		r.log.Error("stray replica cannot be put aside", slog.String("topic", p.Topic()), slog.Int("partition", int(p.Index())), slog.Any("error", err))
	}
}

// allConfigs is what a delta has if everything may have changed.
func allConfigs(im *cluster.Image) []cluster.Resource {
	all := []cluster.Resource{{Kind: kmsg.ConfigResourceTypeBroker}}
	for t := range im.Topics() {
		all = append(all, cluster.Resource{Kind: kmsg.ConfigResourceTypeTopic, Name: t.Name})
	}
	return all
}

// applyConfigs hands on configs that may have changed.
func (r *reconciler) applyConfigs(old, im *cluster.Image, changed []cluster.Resource) {
	broker, topics := false, []string(nil)
	for _, c := range changed {
		switch c.Kind {
		case kmsg.ConfigResourceTypeBroker:
			broker = true
		case kmsg.ConfigResourceTypeTopic:
			topics = append(topics, c.Name)
		}
	}
	if broker && r.brokerChanged(old, im) {
		cfg := r.hooks.setConfig(im.Config(kmsg.ConfigResourceTypeBroker, ""), im.Config(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(r.nodeID))))
		r.replicas.SetBrokerConfig(cfg)
		topics = topicNames(im) // what topics have by default may have changed
	}
	slices.Sort(topics)
	for _, name := range slices.Compact(topics) {
		if im.Topic(name) != nil {
			r.replicas.SetConfig(name, r.hooks.topicConfig(name))
		}
	}
}

// brokerChanged tells whether this node's dynamic configs are others than before.
func (r *reconciler) brokerChanged(old, im *cluster.Image) bool {
	for _, name := range []string{"", strconv.Itoa(int(r.nodeID))} {
		var before map[string]string
		if old != nil {
			before = old.Config(kmsg.ConfigResourceTypeBroker, name)
		}
		if !maps.Equal(before, im.Config(kmsg.ConfigResourceTypeBroker, name)) {
			return true
		}
	}
	return false
}

// applyTopics makes the replicas of the named topics what they are in the image. Names are ascending.
func (r *reconciler) applyTopics(old, im *cluster.Image, names []string) {
	var deleted []string
	var work []replicaWork
	for _, name := range names {
		var before *cluster.Topic
		if old != nil {
			before = old.Topic(name)
		}
		now := im.Topic(name)
		if before != nil && (now == nil || now.ID != before.ID) {
			r.removeTopic(before)
			deleted = append(deleted, name)
			before = nil
		}
		if now == nil {
			delete(r.failed, name)
			continue
		}
		cfg := r.hooks.topicConfig(name)
		for i := range now.Partitions {
			work = append(work, replicaWork{topic: now, config: cfg, index: int32(i), offline: im.Offline(&now.Partitions[i], r.nodeID)})
		}
	}
	if len(deleted) > 0 {
		r.hooks.topicsDeleted(deleted)
	}
	r.place(work)
}

func (r *reconciler) removeTopic(t *cluster.Topic) {
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if !slices.Contains(p.Replicas, r.nodeID) {
			continue
		}
		if t.Internal {
			r.hooks.unload(t.Name, int32(i), p.LeaderEpoch)
		}
		if err := r.replicas.Delete(t.Name, int32(i)); err != nil {
			r.log.Error("replica cannot be deleted", slog.String("topic", t.Name), slog.Int("partition", i), slog.Any("error", err))
		}
	}
}

// replicaWork is one partition to be made what the metadata says.
type replicaWork struct {
	topic   *cluster.Topic
	config  *config.Topic
	index   int32
	offline bool // its log directory cannot be used
	made    *partition.Partition
	err     error
}

// place makes replicas and leads them, several at once as each waits for its disk, and then loads the coordinators of those that have one.
func (r *reconciler) place(work []replicaWork) {
	next := make(chan *replicaWork)
	var workers sync.WaitGroup
	for range min(len(work), 4*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for w := range next {
				w.made, w.err = r.placeOne(w)
			}
		})
	}
	for i := range work {
		next <- &work[i]
	}
	close(next)
	workers.Wait()
	for i := range work {
		w := &work[i]
		p := &w.topic.Partitions[w.index]
		switch {
		case w.err != nil:
			r.failed[w.topic.Name] = true
			r.log.Error("replica is not in service", slog.String("topic", w.topic.Name), slog.Int("partition", int(w.index)), slog.Any("error", w.err))
		case w.made == nil || !w.topic.Internal:
		case p.Leader == r.nodeID:
			r.hooks.load(w.topic.Name, w.index, p.LeaderEpoch, w.made)
		default:
			r.hooks.unload(w.topic.Name, w.index, p.LeaderEpoch)
		}
	}
}

// placeOne makes one replica of this node and leads it if it shall. It is nil if this node has none of the partition.
func (r *reconciler) placeOne(w *replicaWork) (*partition.Partition, error) {
	t, index := w.topic, w.index
	p := &t.Partitions[index]
	if !slices.Contains(p.Replicas, r.nodeID) {
		return nil, nil
	}
	replica := r.replicas.Get(t.Name, index)
	if replica == nil || replica.TopicID() != t.ID {
		if w.offline {
			return nil, nil
		}
		var err error
		if replica, err = r.replicas.Create(p.Directory(r.nodeID), t.Name, t.ID, index, w.config, time.Now()); err != nil {
			return nil, err
		}
	}
	if p.Leader != r.nodeID {
		replica.Resign(p.LeaderEpoch)
		return replica, nil
	}
	return replica, replica.Lead(p.LeaderEpoch, p.Replicas, p.ISR)
}

// startReconciler brings up what the metadata says this node is. The first block of producer ids is had here as well: both need the
// registration.
func (s *Server) startReconciler(ctx context.Context) error {
	s.pids = newProducerIDs(func(ctx context.Context) (int64, int32, error) {
		return s.ctrl.AllocateProducerIDs(ctx, s.nodeID, s.brokerEpoch.Load())
	}, s.loggers.of(logTransactions))
	s.reconciler = newReconciler(s.nodeID, s.ctrl, s.replicas, reconcileHooks{
		load:          s.loadCoordinator,
		unload:        s.unloadCoordinator,
		topicsDeleted: s.topicsDeleted,
		setConfig: func(clusterDefault, perBroker map[string]string) *config.Broker {
			s.setConfig(clusterDefault, perBroker)
			return s.cfg()
		},
		topicConfig: s.topicConfig,
		assign:      s.assign,
	}, s.loggers.of(logState))
	s.reconciler.start()
	return s.pids.fill(ctx)
}

func (s *Server) stopReconciler(context.Context) error {
	s.moves.close()
	s.reconciler.stop()
	s.pids.close()
	return nil
}

// applied waits until this node is what the metadata says that the caller has just changed: topics made can be written to, deleted ones are
// gone. What is not done when ctx ends gets done all the same.
func (s *Server) applied(ctx context.Context) {
	if err := s.reconciler.await(ctx, s.image().Index); errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("changed metadata is not yet in effect here", slog.Int64("index", s.image().Index))
	}
}

// topicsDeleted has the groups forget their offsets of topics that are no more. Groups that are being loaded keep them until they expire, as in
// Kafka.
func (s *Server) topicsDeleted(names []string) {
	s.metrics.forgetTopics(names)
	shards, _ := s.groups.Shards()
	for _, shard := range shards {
		for _, name := range names {
			shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
				return m.DeleteTopic(to, name)
			})
		}
	}
}
