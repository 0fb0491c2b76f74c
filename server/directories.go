package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/cluster"
	"oncelog/partition"
)

// misplaced are the replicas that lie in another log directory than the metadata has them in. Of two replicas of one partition, which a move that
// was cut short leaves, the one that the metadata doesn't mean is put aside.
func (r *reconciler) misplaced(im *cluster.Image) (found []cluster.Placement) {
	var strangers []*partition.Partition
	home := map[replicaName]bool{} // is where it should be
	for p := range r.replicas.All() {
		t := im.Topic(p.Topic())
		switch {
		case t == nil || t.ID != p.TopicID() || int(p.Index()) >= len(t.Partitions):
		case r.replicas.DirectoryOf(p) == t.Partitions[p.Index()].Directory(r.nodeID):
			home[replicaName{p.Topic(), p.Index()}] = true
		default:
			strangers = append(strangers, p)
		}
	}
	for _, p := range strangers {
		if home[replicaName{p.Topic(), p.Index()}] {
			r.stray(p)
			continue
		}
		found = append(found, cluster.Placement{TopicID: p.TopicID(), Index: p.Index(), Directory: r.replicas.DirectoryOf(p)})
	}
	return found
}

// assign tells the metadata where replicas are.
func (s *Server) assign(placements []cluster.Placement) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return s.ctrl.AssignDirectories(ctx, s.nodeID, placements)
}

// directoryFailed tells the metadata which log directories are left. Without any the server can't go on.
func (s *Server) directoryFailed(left [][16]byte) {
	if len(left) == 0 {
		s.fail(errors.New("all log directories have failed"))
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	if s.ctrl == nil || s.brokerEpoch.Load() < 0 {
		return // the registration will tell
	}
	if err := s.ctrl.SetLogDirs(ctx, s.nodeID, s.brokerEpoch.Load(), left); err != nil {
		s.log.Error("metadata does not know of a failed log directory", slog.Any("error", err))
	}
}

// moveReplica has a replica moved to a log directory, by the absolute path of that. It returns when that is wanted, not when it is done.
func (s *Server) moveReplica(path, topic string, index int32) error {
	if len(topic)+len(strconv.Itoa(int(index))) > longestMoved {
		return kerr.InvalidTopicException
	}
	dirs := s.replicas.Directories()
	i := slices.IndexFunc(dirs, func(d partition.Directory) bool { return d.Path == path })
	if i < 0 {
		return kerr.LogDirNotFound
	}
	if dirs[i].Err != nil {
		return kerr.KafkaStorageError
	}
	name := replicaName{topic, index}
	p := s.replicas.Get(name.topic, name.index)
	if (p == nil || p.Err() != nil) && !s.moves.underWay(name) {
		if t := s.image().Topic(topic); t == nil || index < 0 || int(index) >= len(t.Partitions) {
			return kerr.UnknownTopicOrPartition
		}
		return kerr.ReplicaNotAvailable
	}
	s.moves.want(name, dirs[i].ID)
	return nil
}

// longestMoved is the most that a topic's name and a partition's number may have: the name of the folder in which a copy is made
// must not be longer than 255, with a UUID's 32 digits in Kafka.
const longestMoved = 255 - len("-.0123456789abcdef0123456789abcdef-future")

type replicaName struct {
	topic string
	index int32
}

// moves are replicas on their way from one log directory to another: one at a time, on a goroutine that is there while there is any. Which
// replica is wanted where is forgotten when the process ends.
type moves struct {
	server *Server

	mu      sync.Mutex
	wanted  map[replicaName][16]byte
	order   []replicaName // of wanted, and perhaps some that are not any more
	moving  replicaName
	cancel  context.CancelFunc // of the move under way; nil if there is none
	running bool
	closed  bool
	ended   sync.WaitGroup
}

// want has a replica moved; a later wish replaces an earlier one, and staying where it is does so too.
func (m *moves) want(name replicaName, dir [16]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if m.cancel != nil && m.moving == name {
		m.cancel()
	}
	if _, known := m.wanted[name]; !known {
		m.order = append(m.order, name)
	}
	if m.wanted == nil {
		m.wanted = map[replicaName][16]byte{}
	}
	m.wanted[name] = dir
	if !m.running {
		m.running = true
		m.ended.Go(m.run)
	}
}

// underWay tells whether a replica is being moved: for a moment it is in neither directory then.
func (m *moves) underWay(name replicaName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cancel != nil && m.moving == name
}

func (m *moves) run() {
	for {
		ctx, name, dir, ok := m.next()
		if !ok {
			return
		}
		m.server.move(ctx, name, dir)
		m.mu.Lock()
		m.cancel()
		m.cancel = nil
		m.mu.Unlock()
	}
}

// next takes the first wish.
func (m *moves) next() (ctx context.Context, name replicaName, dir [16]byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.order) > 0 && !m.closed {
		name, m.order = m.order[0], m.order[1:]
		if dir, ok = m.wanted[name]; ok {
			delete(m.wanted, name)
			ctx, m.cancel = context.WithCancel(m.server.ctx)
			m.moving = name
			return ctx, name, dir, true
		}
	}
	m.running = false
	return nil, name, dir, false
}

// close gives up what is under way.
func (m *moves) close() {
	m.mu.Lock()
	m.closed = true
	if m.cancel != nil {
		m.cancel()
	}
	m.mu.Unlock()
	m.ended.Wait()
}

// move brings one replica to a log directory. What has taken its place is led as soon as the metadata knows where it is.
func (s *Server) move(ctx context.Context, name replicaName, dir [16]byte) {
	p := s.replicas.Get(name.topic, name.index)
	if p == nil {
		return
	}
	moved, err := s.replicas.Move(ctx, p, dir, time.Now())
	if err != nil && !errors.Is(err, context.Canceled) {
		s.log.Error("replica could not be moved", slog.String("topic", name.topic), slog.Int("partition", int(name.index)), slog.Any("error", err))
	}
	if moved == nil || moved == p {
		return
	}
	placement := cluster.Placement{TopicID: moved.TopicID(), Index: name.index, Directory: s.replicas.DirectoryOf(moved)}
	if err := s.assign([]cluster.Placement{placement}); err != nil {
		s.log.Error("metadata does not know of a moved replica", slog.String("topic", name.topic), slog.Int("partition", int(name.index)), slog.Any("error", err))
	}
	s.reconciler.replaced(name)
}

// replaced has a replica led that another one has taken the place of, and its coordinator begin anew.
func (r *reconciler) replaced(name replicaName) {
	r.mu.Lock()
	r.again = append(r.again, name)
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *reconciler) lookAgain() {
	r.mu.Lock()
	replaced := r.again
	r.again = nil
	r.mu.Unlock()
	var names []string
	for _, name := range replaced {
		t := r.image.Topic(name.topic)
		if t != nil && t.Internal && int(name.index) < len(t.Partitions) {
			r.hooks.unload(name.topic, name.index, t.Partitions[name.index].LeaderEpoch)
		}
		names = append(names, name.topic)
	}
	slices.Sort(names)
	r.applyTopics(r.image, r.image, slices.Compact(names))
}
