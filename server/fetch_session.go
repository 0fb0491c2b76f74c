package server

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch sessions (KIP-227): a fetcher names its partitions once and then only
// what changes; the answers leave out the partitions that have no news.
//
// Sessions live in shards, each with an eighth of the slots and of the ids. A
// full shard gives up a session that has not been used for sessionIdle, or one
// that is older than sessionIdle and not larger than the new one; otherwise the
// fetcher gets no session and goes on with full fetches.
//
// Slots say nothing of how large sessions are, and a session may grow, so a shard
// has a bound for the partitions in it too. A session that would exceed it is not
// begun, or is given up; the fetcher goes on with full fetches.
const (
	sessionShards     = 8
	sessionIdle       = 120 * time.Second
	sessionPartitions = 1 << 17 // in a shard, about 30 MiB
)

// The session epochs that mean something else than a number.
const (
	sessionInitial = 0
	sessionFinal   = -1
)

type fetchSessions struct {
	shards [sessionShards]sessionShard
	next   atomic.Uint32 // the shard of the next session
}

// sessionShard is one eighth of the sessions. Its lock is not held while a
// session's is taken.
type sessionShard struct {
	mu       sync.Mutex
	max      int
	first    int32                   // smallest id here; the shard has sessionIDRange of them
	sessions map[int32]*fetchSession // guarded by mu
}

const sessionIDRange = math.MaxInt32 / sessionShards

// fetchSession is one of them.
type fetchSession struct {
	id         int32 // immutable, and so are the next three
	privileged bool  // a follower's
	topicIDs   bool
	created    time.Time

	// Guarded by the shard's mu.
	used  time.Time
	size  int // partitions, at the last use
	grown bool

	mu         sync.Mutex
	epoch      int32                            // guarded by mu: of the next request
	partitions map[sessionKey]*sessionPartition // guarded by mu
	head       sessionPartition                 // guarded by mu: ring of the partitions, in the order they are read in
}

// sessionKey names a partition: by name or by id, as the session does.
type sessionKey struct {
	topic string
	id    [16]byte
	index int32
}

// sessionPartition is what a session knows of a partition. Guarded by the
// session's mu.
type sessionPartition struct {
	fetchTarget
	hw, start  int64 // as last answered; -1 if never, or after an error
	next, prev *sessionPartition
}

func newFetchSessions(slots int) *fetchSessions {
	fs := new(fetchSessions)
	for i := range fs.shards {
		fs.shards[i] = sessionShard{
			max:      slots / sessionShards,
			first:    int32(i) * sessionIDRange,
			sessions: make(map[int32]*fetchSession),
		}
	}
	return fs
}

// begin finds out which partitions f reads, and in which session it does.
func (fs *fetchSessions) begin(f *fetch, req *kmsg.FetchRequest, now time.Time) error {
	f.full = true
	id, epoch := req.SessionID, req.SessionEpoch
	if req.Version < 7 {
		id, epoch = 0, sessionFinal
	}
	if epoch == sessionInitial || epoch == sessionFinal {
		if id != 0 {
			fs.remove(id)
		}
		f.rows = targetsOf(f.rows[:0], req)
		if epoch == sessionInitial {
			f.session = fs.create(f.rows, req, now)
			if f.session != nil {
				f.SessionID = f.session.id
			}
		}
		return nil
	}
	s := fs.get(id)
	if s == nil {
		return kerr.FetchSessionIDNotFound
	}
	empty, err := s.advance(f, req)
	if err != nil {
		return err
	}
	if empty {
		fs.remove(id)
		return nil
	}
	if len(f.rows) > sessionPartitions {
		fs.remove(id)
		return kerr.FetchSessionIDNotFound
	}
	f.session, f.SessionID, f.full = s, s.id, false
	fs.touch(s, len(f.rows), now)
	return nil
}

// shard gives the shard that an id belongs to.
func (fs *fetchSessions) shard(id int32) *sessionShard {
	return &fs.shards[min(max(id, 0)/sessionIDRange, sessionShards-1)]
}

func (fs *fetchSessions) get(id int32) *fetchSession {
	shard := fs.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.sessions[id]
}

func (fs *fetchSessions) remove(id int32) {
	shard := fs.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	delete(shard.sessions, id)
}

func (fs *fetchSessions) touch(s *fetchSession, size int, now time.Time) {
	shard := fs.shard(s.id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	s.use(size, now)
}

// use notes a use. The shard's lock is held.
func (s *fetchSession) use(size int, now time.Time) {
	s.used, s.size = now, size
	s.grown = now.Sub(s.created) > sessionIdle
}

// count gives the number of sessions and of the partitions in them.
func (fs *fetchSessions) count() (sessions, partitions int) {
	for i := range fs.shards {
		shard := &fs.shards[i]
		shard.mu.Lock()
		sessions += len(shard.sessions)
		for _, s := range shard.sessions {
			partitions += s.size
		}
		shard.mu.Unlock()
	}
	return sessions, partitions
}

// create makes a session of these partitions, nil if there is no room.
func (fs *fetchSessions) create(rows []fetchRow, req *kmsg.FetchRequest, now time.Time) *fetchSession {
	s := &fetchSession{topicIDs: req.Version >= 13, created: now, epoch: 1}
	s.privileged = req.ReplicaID >= 0
	if req.Version >= 15 {
		s.privileged = req.ReplicaState.ID >= 0
	}
	shard := &fs.shards[fs.next.Add(1)%sessionShards]
	shard.mu.Lock()
	if !shard.holds(len(rows), now) || len(shard.sessions) >= shard.max && !shard.evict(s.privileged, len(rows), now) {
		shard.mu.Unlock()
		return nil
	}
	for s.id == 0 || shard.sessions[s.id] != nil {
		s.id = shard.first + rand.Int32N(sessionIDRange)
	}
	s.use(len(rows), now)
	shard.sessions[s.id] = s
	// The lock is let go only after the session's is taken: nobody sees it empty.
	s.mu.Lock()
	defer s.mu.Unlock()
	shard.mu.Unlock()
	s.head.next, s.head.prev = &s.head, &s.head
	s.partitions = make(map[sessionKey]*sessionPartition, len(rows))
	for i := range rows {
		rows[i].cached = s.put(rows[i].fetchTarget)
	}
	return s
}

// holds tells whether the shard can hold so many partitions more. It gives up
// sessions that have not been used for sessionIdle for them.
func (shard *sessionShard) holds(partitions int, now time.Time) bool {
	for _, s := range shard.sessions {
		partitions += s.size
	}
	for id, s := range shard.sessions {
		if partitions <= sessionPartitions {
			break
		}
		if now.Sub(s.used) > sessionIdle {
			delete(shard.sessions, id)
			partitions -= s.size
		}
	}
	return partitions <= sessionPartitions
}

// evict makes room for a session of that size, if it may.
func (shard *sessionShard) evict(privileged bool, size int, now time.Time) bool {
	var oldest, smallest *fetchSession
	for _, s := range shard.sessions {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
		if !s.grown && !(privileged && !s.privileged) {
			continue
		}
		if smallest == nil || s.less(smallest) {
			smallest = s
		}
	}
	switch {
	case oldest == nil:
		return false
	case now.Sub(oldest.used) > sessionIdle:
		delete(shard.sessions, oldest.id)
	case smallest == nil || smallest.privileged && !privileged || smallest.privileged == privileged && smallest.size > size:
		return false
	default:
		delete(shard.sessions, smallest.id)
	}
	return true
}

// less orders sessions by what is given up first.
func (s *fetchSession) less(o *fetchSession) bool {
	switch {
	case s.privileged != o.privileged:
		return o.privileged
	case s.size != o.size:
		return s.size < o.size
	default:
		return s.id < o.id
	}
}

// advance takes in what an incremental request changes, and puts all partitions
// of the session into f. It tells whether there are none any more.
func (s *fetchSession) advance(f *fetch, req *kmsg.FetchRequest) (empty bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.SessionEpoch != s.epoch {
		return false, kerr.InvalidFetchSessionEpoch
	}
	if s.topicIDs != (req.Version >= 13) {
		return false, kerr.FetchSessionTopicIDError
	}
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
	for _, row := range targetsOf(f.rows[:0], req) {
		s.put(row.fetchTarget)
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			s.forget(s.key(t.Topic, t.TopicID, index))
		}
	}
	f.rows = slices.Grow(f.rows[:0], len(s.partitions))
	for p := s.head.next; p != &s.head; p = p.next {
		f.rows = append(f.rows, fetchRow{fetchTarget: p.fetchTarget, cached: p, leader: -1, leaderAt: -1})
	}
	return len(f.rows) == 0, nil
}

func (s *fetchSession) key(topic string, id [16]byte, index int32) sessionKey {
	if s.topicIDs {
		return sessionKey{id: id, index: index}
	}
	return sessionKey{topic: topic, index: index}
}

// put adds a partition at the end, or changes it where it is.
func (s *fetchSession) put(t fetchTarget) *sessionPartition {
	key := s.key(t.topic, t.id, t.index)
	if p := s.partitions[key]; p != nil {
		if t.topic == "" {
			t.topic = p.topic
		}
		p.fetchTarget = t
		return p
	}
	p := &sessionPartition{fetchTarget: t, hw: -1, start: -1}
	s.partitions[key] = p
	s.pushBack(p)
	return p
}

func (s *fetchSession) pushBack(p *sessionPartition) {
	p.prev, p.next = s.head.prev, &s.head
	p.prev.next, p.next.prev = p, p
}

func (p *sessionPartition) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}

func (s *fetchSession) forget(key sessionKey) {
	if p := s.partitions[key]; p != nil {
		delete(s.partitions, key)
		p.unlink()
	}
}

// finish decides which rows of f have news, and remembers what they say.
// Partitions that have records go to the end, so that the others come first the
// next time.
func (fs *fetchSessions) finish(f *fetch) {
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range f.rows {
		row := &f.rows[i]
		p := row.cached
		if p.next == nil {
			continue // forgotten by a later request
		}
		p.topic = row.topic // as far as the id is known
		data := row.code == 0 && row.result.Slice.Len > 0
		news := data || row.code != 0 || row.result.Diverging != nil || row.result.HW != p.hw || row.result.LogStart != p.start
		row.omit = !f.full && !news
		if row.code != 0 {
			p.hw = -1
			continue
		}
		p.hw, p.start = row.result.HW, row.result.LogStart
		if data && !f.full {
			p.unlink()
			s.pushBack(p)
		}
	}
}
