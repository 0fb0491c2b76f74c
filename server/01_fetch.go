package server

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/partition"
)

// Fetch (1), versions 4 to 18.
//
// Behavior
//   - Reads each partition in turn within MaxBytes (at most fetch.max.bytes), the partition's own limit, and up to what the
//     isolation level lets see. The first partition that has records yields a whole batch, whatever the limits (KIP-74).
//   - Answers at once when MinBytes are there, nothing can be waited for, or a partition that was read has an error. Otherwise
//     the request watches its partitions and is woken by them; after MaxWaitMs it answers what there is.
//   - Sessions (KIP-227): see fetch_session.go. A partition that is named twice counts as its last.
//   - What can't be read because there is no such topic, id or partition comes last in the answer and does not end the wait.
//
// Version notes
//   - 4: isolation level, aborted transactions. 5: log start offset. 7: sessions. 9: current leader epoch. 11: rack; from here
//     on consumers may read from any replica.
//   - 12: flexible, LastFetchedEpoch and diverging epochs (KIP-595). 13: topic ids. 15: replica epoch. 16: the leader, where
//     another one is meant (KIP-951). 18: the high watermark the fetcher knows (KIP-1166), which data partitions ignore.
//
// Records do not go through memory when they are many: see fetch_response.go.

const fetchKey = 1

// Replica ids of who is no broker: consumers, and in Kafka a replica that moves to another log directory. -2 is for debugging.
const (
	consumerID      = -1
	movingReplicaID = -3
)

// fetchTarget is one partition as a fetcher asks for it.
type fetchTarget struct {
	topic     string // "" while the id of a topic is unknown
	id        [16]byte
	index     int32
	maxBytes  int32
	offset    int64
	epoch     int32 // current leader epoch the fetcher knows; below 0 for any
	lastEpoch int32 // of the last record it has; below 0 for none
}

// fetchRow is one partition of one fetch, with the answer so far.
type fetchRow struct {
	fetchTarget
	cached   *sessionPartition // of the session; nil outside of one
	replica  *partition.Partition
	code     int16
	early    bool // refused before reading
	result   partition.ReadResult
	omit     bool // nothing new for the session
	leader   int32
	leaderAt int32 // epoch
}

// fetch is one Fetch on its way, and its response.
type fetch struct {
	kmsg.FetchResponse // Version, ErrorCode, SessionID and Brokers; the topics are rows

	server  *Server
	request *request
	session *fetchSession // nil without one
	full    bool          // every partition is answered
	rows    []fetchRow
	params  fetchParams
}

// fetchParams are what holds for all partitions of a fetch.
type fetchParams struct {
	isolation  partition.Isolation
	replicaID  int32
	anyReplica bool
	maxBytes   int64
	minBytes   int64
	deadline   time.Time
}

var fetches = sync.Pool{New: func() any { return new(fetch) }}

func (s *Server) handleFetch(r *request) pending {
	req := r.body.(*kmsg.FetchRequest)
	f := fetches.Get().(*fetch)
	f.server, f.request = s, r
	f.FetchResponse.Default()
	f.Version = req.Version
	if err := s.sessions.begin(f, req, time.Now()); err != nil {
		f.ErrorCode = errorCode(err)
		s.metrics.fetchError(f.ErrorCode)
		return answer(f)
	}
	if !isIsolation(req.IsolationLevel) && f.readable() {
		f.refuse(req, kerr.UnknownServerError)
		return answer(f)
	}
	f.setParams(req)
	f.read(false)
	if f.ready() || req.MaxWaitMillis <= 0 {
		f.finish()
		return answer(f)
	}
	f.releaseSlices()
	return await(func(ctx context.Context) kmsg.Response {
		f.park(ctx)
		f.finish()
		return f
	})
}

// isIsolation tells whether there is such an isolation level.
func isIsolation(level int8) bool { return level == 0 || level == 1 }

// readable tells whether there is any partition to read from.
func (f *fetch) readable() bool {
	for i := range f.rows {
		if f.resolve(&f.rows[i]) == nil {
			return true
		}
	}
	return false
}

// setParams takes from the request what holds for all partitions.
func (f *fetch) setParams(req *kmsg.FetchRequest) {
	p := &f.params
	p.replicaID = req.ReplicaID
	if req.Version >= 15 {
		p.replicaID = req.ReplicaState.ID
	}
	switch {
	case p.replicaID >= 0 || p.replicaID == movingReplicaID:
		p.isolation = partition.ReadLogEnd
	case req.IsolationLevel == 1:
		p.isolation = partition.ReadCommitted
	default:
		p.isolation = partition.ReadUncommitted
	}
	p.anyReplica = p.replicaID < 0 && req.Version >= 11
	p.maxBytes = min(int64(req.MaxBytes), f.server.cfg().Int("fetch.max.bytes"))
	p.minBytes = min(int64(req.MinBytes), p.maxBytes)
	p.deadline = f.request.received.Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
}

// refuse makes f the answer to a request that is refused as a whole: every
// partition is named with the error.
func (f *fetch) refuse(req *kmsg.FetchRequest, code *kerr.Error) {
	f.ErrorCode, f.SessionID = code.Code, req.SessionID
	f.server.metrics.fetchError(code.Code)
	f.full = true
	if req.SessionEpoch == sessionInitial && f.session != nil {
		f.server.sessions.remove(f.session.id)
	}
	f.session, f.rows = nil, f.rows[:0]
	if req.Version >= 13 {
		return // as in Kafka, which names topics here and has ids only
	}
	f.rows = targetsOf(f.rows, req)
	for i := range f.rows {
		f.rows[i].early = true
		f.rows[i].fail(code.Code)
	}
}

// fail is the row of a partition that can't be read.
func (row *fetchRow) fail(code int16) {
	row.code = code
	row.result = partition.ReadResult{HW: -1, LSO: -1, LogStart: -1}
}

// read reads the partitions, within the limits. When they are read again, what
// is unknown stays so for this fetch: nobody watches it.
func (f *fetch) read(again bool) {
	left, minOne := f.params.maxBytes, true
	for i := range f.rows {
		row := &f.rows[i]
		if again && row.early {
			continue
		}
		watched := row.replica
		f.readRow(row, min(int64(row.maxBytes), left), minOne)
		if again && row.replica == nil {
			row.early, row.replica = false, watched // deleted meanwhile: an error, and still watched
		}
		if n := row.result.Slice.Len; n > 0 {
			minOne = false
			left = max(left-int64(n), 0)
		} else if left < 0 {
			left = 0 // as in Kafka, where only the first read meets the negative limit
		}
	}
}

// readRow reads one partition.
func (f *fetch) readRow(row *fetchRow, limit int64, minOne bool) {
	row.code, row.early, row.omit = 0, false, false
	row.leader, row.leaderAt = -1, -1
	if err := f.resolve(row); err != nil {
		row.early = !errors.Is(err, kerr.InconsistentTopicID)
		row.fail(errorCode(err))
		return
	}
	err := f.checkReplica(row)
	if err == nil {
		row.result, err = row.replica.Read(partition.ReadRequest{
			Offset:             row.offset,
			MaxBytes:           int(limit),
			MinOne:             minOne,
			Isolation:          f.params.isolation,
			CurrentLeaderEpoch: row.epoch,
			LastFetchedEpoch:   row.lastEpoch,
			AnyReplica:         f.params.anyReplica,
		})
	}
	if err == nil && limit < 0 && row.offset < f.bound(row.result) {
		row.result.Slice.Release()
		err = kerr.UnknownServerError // a negative limit, as Kafka answers it
	}
	if err != nil {
		row.fail(f.server.codeOf(err, "topic", row.topic, "partition", row.index))
	}
}

// bound is the offset up to which this fetch sees.
func (f *fetch) bound(r partition.ReadResult) int64 {
	switch f.params.isolation {
	case partition.ReadCommitted:
		return r.LSO
	case partition.ReadLogEnd:
		return math.MaxInt64
	default:
		return r.HW
	}
}

// resolve finds the replica of a row. An id that was known before, by the session or when the wait began, stands for its name
// when the topic is gone, as in Kafka.
func (f *fetch) resolve(row *fetchRow) error {
	if row.replica != nil && row.replica.Err() == nil {
		return nil // it was read before, and hasn't been removed
	}
	s := f.server
	if f.Version >= 13 {
		if row.replica = s.replicas.GetByID(row.id, row.index); row.replica != nil {
			row.topic = row.replica.Topic()
			return nil
		}
		switch t := s.image().TopicByID(row.id); {
		case t != nil:
			row.topic = t.Name
		case row.topic == "":
			return kerr.UnknownTopicID
		case s.replicas.Get(row.topic, row.index) != nil:
			return kerr.InconsistentTopicID // the name has a new topic
		}
		return s.absent(row.topic, row.index)
	}
	if row.replica = s.replicas.Get(row.topic, row.index); row.replica != nil {
		return nil
	}
	return s.absent(row.topic, row.index)
}

// absent is why a partition has no replica here: there is no such partition, or
// it is elsewhere.
func (s *Server) absent(topic string, index int32) error {
	t := s.image().Topic(topic)
	if t == nil || index < 0 || int(index) >= len(t.Partitions) {
		return kerr.UnknownTopicOrPartition
	}
	return kerr.NotLeaderForPartition
}

// checkReplica refuses a follower that has no business with the partition.
func (f *fetch) checkReplica(row *fetchRow) error {
	id := f.params.replicaID
	if id < 0 {
		return nil
	}
	t := f.server.image().Topic(row.topic)
	if t != nil && int(row.index) < len(t.Partitions) && id != f.server.nodeID {
		for _, replica := range t.Partitions[row.index].Replicas {
			if replica == id {
				return nil
			}
		}
	}
	if row.epoch >= 0 {
		return kerr.UnknownLeaderEpoch
	}
	return kerr.NotLeaderForPartition
}

// ready tells whether what has been read must not wait for more.
func (f *fetch) ready() bool {
	readable, bytes := false, int64(0)
	for i := range f.rows {
		row := &f.rows[i]
		if row.early {
			continue
		}
		readable = true
		if row.code != 0 || row.result.Diverging != nil {
			return true
		}
		bytes += int64(row.result.Slice.Len)
	}
	return !readable || bytes >= f.params.minBytes
}

// park waits until the fetch is ready or its time is over, and has read then.
func (f *fetch) park(ctx context.Context) {
	w := partition.NewWaiter()
	for i := range f.rows {
		if !f.rows[i].early {
			f.rows[i].replica.Watch(w)
		}
	}
	defer func() {
		for i := range f.rows {
			if !f.rows[i].early {
				f.rows[i].replica.Unwatch(w)
			}
		}
	}()
	timer := time.NewTimer(time.Until(f.params.deadline))
	defer timer.Stop()
	for {
		if f.worthReading() {
			f.read(true)
			if f.ready() {
				return
			}
			f.releaseSlices()
		}
		select {
		case <-w:
			continue
		case <-timer.C:
		case <-ctx.Done():
		case <-f.server.conns.draining:
		}
		f.read(true)
		return
	}
}

// worthReading tells, without touching records, whether reading could make the
// fetch ready. Rows have been read once, their results say how things were.
func (f *fetch) worthReading() bool {
	bytes := int64(0)
	for i := range f.rows {
		row := &f.rows[i]
		if row.early {
			continue
		}
		o := row.replica.Offsets()
		if row.replica.Err() != nil || o.LeaderEpoch != row.result.LeaderEpoch || row.offset < o.Start || row.offset > o.End {
			return true
		}
		if row.offset == o.End {
			continue // as most of many are
		}
		bytes += min(row.replica.Readable(row.offset, f.params.isolation), int64(row.maxBytes))
		if bytes >= f.params.minBytes {
			return true
		}
	}
	return false
}

// finish makes the answer of what has been read: which rows go, where leaders
// are, and what the session remembers.
func (f *fetch) finish() {
	m := f.server.metrics
	for i := range f.rows {
		row := &f.rows[i]
		if row.code != 0 {
			m.fetchError(row.code)
			f.nameLeader(row)
		}
		if n := row.result.Slice.Len; n > 0 {
			m.topic(row.topic).bytesOut.Add(int64(n))
		}
	}
	if f.session != nil {
		f.server.sessions.finish(f)
	}
}

// nameLeader tells who leads the partition of a row that was refused for not
// knowing it (KIP-951).
func (f *fetch) nameLeader(row *fetchRow) {
	if f.Version < 16 || row.code != kerr.NotLeaderForPartition.Code && row.code != kerr.FencedLeaderEpoch.Code {
		return
	}
	row.leader, row.leaderAt = f.server.leaderOf(row.topic, row.index)
	if f.params.replicaID >= 0 {
		return // followers know where brokers are
	}
	host, port, rack, ok := f.server.leaderEndpoint(f.request, row.leader)
	if !ok {
		return
	}
	for _, b := range f.Brokers {
		if b.NodeID == row.leader {
			return
		}
	}
	b := kmsg.NewFetchResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = row.leader, host, port, rack
	f.Brokers = append(f.Brokers, b)
}

// leaderOf gives the leader of a partition and its epoch, -1 if unknown.
func (s *Server) leaderOf(topic string, index int32) (leader, epoch int32) {
	t := s.image().Topic(topic)
	if t == nil || index < 0 || int(index) >= len(t.Partitions) {
		return -1, -1
	}
	return t.Partitions[index].Leader, t.Partitions[index].LeaderEpoch
}

// leaderEndpoint gives where whoever sent r reaches a leader.
func (s *Server) leaderEndpoint(r *request, leader int32) (host string, port int32, rack *string, ok bool) {
	b := s.image().Broker(leader)
	if b == nil {
		return "", 0, nil, false
	}
	host, port = s.endpoint(r, b)
	return host, port, b.Rack, host != ""
}

// releaseSlices gives back what has been read.
func (f *fetch) releaseSlices() {
	for i := range f.rows {
		row := &f.rows[i]
		if !row.early && row.code == 0 {
			row.result.Slice.Release()
		}
		row.result.Slice.Len = 0
	}
}

// targetsOf gives the partitions that a request names, in its order. Of one that
// is named twice the last counts, at the place of the first.
func targetsOf(rows []fetchRow, req *kmsg.FetchRequest) []fetchRow {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			target := fetchTarget{
				topic: t.Topic, id: t.TopicID, index: p.Partition,
				maxBytes: p.PartitionMaxBytes, offset: p.FetchOffset,
				epoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
			}
			rows = append(rows, fetchRow{fetchTarget: target, leader: -1, leaderAt: -1})
		}
	}
	return dedupe(rows)
}

// dedupe keeps one row per partition.
func dedupe(rows []fetchRow) []fetchRow {
	if len(rows) < 2 {
		return rows
	}
	type key struct {
		topic string
		id    [16]byte
		index int32
	}
	// The usual request names partitions in ascending order within its topics.
	ascending := true
	for i := 1; i < len(rows) && ascending; i++ {
		a, b := &rows[i-1].fetchTarget, &rows[i].fetchTarget
		ascending = a.topic == b.topic && a.id == b.id && a.index < b.index
	}
	if ascending {
		return rows
	}
	seen := make(map[key]int, len(rows))
	kept := rows[:0]
	for _, row := range rows {
		k := key{row.topic, row.id, row.index}
		if at, twice := seen[k]; twice {
			kept[at] = row
			continue
		}
		seen[k] = len(kept)
		kept = append(kept, row)
	}
	return kept
}
