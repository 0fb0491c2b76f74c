package txncoordinator

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// Shard is a coordinator partition and its machine.
type Shard = coordinator.Shard[*Machine]

const (
	// A marker that could not be written is tried again after retryMin, then after twice as long up to retryMax, and
	// earlier when the cluster's metadata changes. Answers that no retry is known to cure wait for retryMax at once.
	retryMin = 20 * time.Millisecond
	retryMax = 2 * time.Second
	// maxRequestPartitions bounds one request to another broker.
	maxRequestPartitions = 2000
	// maxInlinePartitions bounds what a shard's own goroutine writes to this broker's partitions.
	maxInlinePartitions = 32
)

// SenderOptions are what a Sender needs of its node.
type SenderOptions struct {
	NodeID int32
	// Leader gives the broker that leads a partition: -1 if none does or it can't be reached just now. exists is false
	// for a partition that the cluster has no more.
	Leader func(topic string, partition int32) (broker int32, exists bool)
	// Local writes markers to this broker's partitions. The answer is resp if it is ready, else what await gives, nil if
	// its context ends before.
	Local func(req *kmsg.WriteTxnMarkersRequest) (resp *kmsg.WriteTxnMarkersResponse, await func(context.Context) *kmsg.WriteTxnMarkersResponse)
	// Remote writes markers through another broker.
	Remote func(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error)
	// Changed gives a channel that is closed when the cluster's metadata changes.
	Changed func() <-chan struct{}
	Logger  *slog.Logger // nil: slog.Default()
	Metrics *Metrics
}

// Sender writes markers to the partitions of decided transactions, on whichever broker leads them, until each of them has
// its marker or is known to exist no more. It forgets those of a shard that ended: the next coordinator sends them again.
//
// Partitions of this broker are written to at once, on the goroutine that calls Send. Every other broker with markers
// to take has a goroutine, which ends with its queue.
type Sender struct {
	o      SenderOptions
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	closed   bool                   // guarded by mu, like all below
	running  sync.WaitGroup         // added to under mu while not closed
	queues   map[int32]*markerQueue // by broker; a queue exists as long as its goroutine
	parked   []parcel               // what waits for its next try
	retrying bool                   // a goroutine waits for the first of parked
	sooner   chan struct{}          // capacity 1: parked got an earlier one
}

// parcel is the markers of one transaction for some partitions.
type parcel struct {
	shard      *Shard
	markers    *Markers
	partitions Partitions
	delay      time.Duration // before the next try, should this one fail; 0 for the first
	due        time.Time     // of the next try, if parked
}

type markerQueue struct{ parcels []parcel }

// NewSender makes a sender without work.
func NewSender(o SenderOptions) *Sender {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Sender{
		o: o, logger: o.Logger, ctx: ctx, cancel: cancel,
		queues: make(map[int32]*markerQueue), sooner: make(chan struct{}, 1),
	}
}

// Close gives up all work and waits for the sender's goroutines.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.parked = nil
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// Send takes the effects of a machine. It is the Effects function of the machines' host.
func (s *Sender) Send(shard *Shard, effects []any) {
	for _, e := range effects {
		m := e.(*Markers)
		s.o.Metrics.pending(m.Partitions.Len())
		s.dispatch(parcel{shard: shard, markers: m, partitions: m.Partitions})
	}
}

// dispatch sends a parcel on its way: split by leader.
func (s *Sender) dispatch(p parcel) {
	if s.dropped(p) {
		return
	}
	if broker, whole := s.soleLeader(p.partitions); whole {
		s.sendTo(broker, p)
		return
	}
	var gone, leaderless Partitions
	byLeader := make(map[int32]Partitions)
	for _, t := range p.partitions {
		for _, partition := range t.Partitions {
			broker, exists := s.o.Leader(t.Name, partition)
			switch {
			case !exists:
				gone = gone.with(t.Name, partition)
			case broker < 0:
				leaderless = leaderless.with(t.Name, partition)
			default:
				byLeader[broker] = byLeader[broker].with(t.Name, partition)
			}
		}
	}
	if len(gone) > 0 {
		s.done(p, gone)
	}
	if len(leaderless) > 0 {
		s.again(p, leaderless, nil)
	}
	for broker, partitions := range byLeader {
		s.sendTo(broker, p.of(partitions))
	}
}

// soleLeader gives the broker that leads all of the partitions, if one does.
func (s *Sender) soleLeader(partitions Partitions) (broker int32, whole bool) {
	broker = -1
	for _, t := range partitions {
		for _, partition := range t.Partitions {
			leader, exists := s.o.Leader(t.Name, partition)
			if !exists || leader < 0 || broker >= 0 && leader != broker {
				return -1, false
			}
			broker = leader
		}
	}
	return broker, broker >= 0
}

// of is the parcel for a part of its partitions.
func (p parcel) of(partitions Partitions) parcel {
	p.partitions = partitions
	return p
}

// dropped tells whether a parcel is nobody's any more.
func (s *Sender) dropped(p parcel) bool {
	if !p.shard.Ended() {
		return false
	}
	s.o.Metrics.pending(-p.partitions.Len())
	return true
}

// sendTo brings a parcel to one broker.
func (s *Sender) sendTo(broker int32, p parcel) {
	if broker == s.o.NodeID {
		s.sendLocal(p)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if q := s.queues[broker]; q != nil {
		q.parcels = append(q.parcels, p)
		return
	}
	s.queues[broker] = &markerQueue{parcels: []parcel{p}}
	s.running.Go(func() { s.serve(broker) })
}

// sendLocal writes to this broker's partitions, at once if they are few.
func (s *Sender) sendLocal(p parcel) {
	parcels := []parcel{p}
	if p.partitions.Len() > maxInlinePartitions {
		s.start(func() {
			resp, await := s.o.Local(request(parcels))
			if resp == nil {
				resp = await(s.ctx)
			}
			s.settle(parcels, resp, nil)
		})
		return
	}
	resp, await := s.o.Local(request(parcels))
	if resp != nil {
		s.settle(parcels, resp, nil)
		return
	}
	s.start(func() { s.settle(parcels, await(s.ctx), nil) })
}

// start runs f on a goroutine of the sender.
func (s *Sender) start(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Go(f)
	}
}

// serve works off the queue of another broker.
func (s *Sender) serve(broker int32) {
	for {
		parcels := s.take(broker)
		if len(parcels) == 0 {
			return
		}
		parcels = slices.DeleteFunc(parcels, s.dropped)
		if len(parcels) == 0 {
			continue
		}
		resp, err := s.o.Remote(s.ctx, broker, request(parcels))
		s.settle(parcels, resp, err)
	}
}

// take gives the next parcels for a broker. When there are none its goroutine has to end.
func (s *Sender) take(broker int32) []parcel {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[broker]
	n, partitions := 0, 0
	for n < len(q.parcels) && (n == 0 || partitions < maxRequestPartitions) {
		partitions += q.parcels[n].partitions.Len()
		n++
	}
	if n == 0 || s.closed {
		delete(s.queues, broker)
		return nil
	}
	taken := slices.Clone(q.parcels[:n])
	q.parcels = slices.Delete(q.parcels, 0, n)
	return taken
}

// request makes the request for some parcels: one marker each.
func request(parcels []parcel) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.SetVersion(2)
	req.Markers = make([]kmsg.WriteTxnMarkersRequestMarker, len(parcels))
	for i, p := range parcels {
		m := &req.Markers[i]
		m.ProducerID, m.ProducerEpoch = p.markers.Producer.ID, p.markers.Producer.Epoch
		m.Committed = p.markers.Commit
		m.CoordinatorEpoch = p.markers.CoordinatorEpoch
		m.TransactionVersion = int8(p.markers.TransactionVersion)
		m.Topics = make([]kmsg.WriteTxnMarkersRequestMarkerTopic, len(p.partitions))
		for j, t := range p.partitions {
			m.Topics[j].Topic, m.Topics[j].Partitions = t.Name, t.Partitions
		}
	}
	return req
}

// settle does what the answer to some parcels asks for. Without one all of them are tried again.
func (s *Sender) settle(parcels []parcel, resp *kmsg.WriteTxnMarkersResponse, err error) {
	if resp == nil && s.ctx.Err() != nil {
		return
	}
	for _, p := range parcels {
		if s.dropped(p) {
			continue
		}
		codes := codesOf(resp, p.markers.Producer.ID)
		if whole := codes.all(p.partitions); whole {
			s.done(p, p.partitions)
			continue
		}
		s.sort(p, codes, err)
	}
}

// sort splits a parcel by how its partitions fared.
func (s *Sender) sort(p parcel, codes results, err error) {
	var done, retry Partitions
	var cause error
	for _, t := range p.partitions {
		for _, partition := range t.Partitions {
			code, answered := codes.of(t.Name, partition)
			failure := kerr.ErrorForCode(code)
			switch {
			case !answered:
				failure = err
			case code == 0 || code == kerr.UnsupportedForMessageFormat.Code || code == kerr.UnsupportedVersion.Code:
				done = done.with(t.Name, partition)
				continue
			}
			s.o.Metrics.failed()
			retry, cause = retry.with(t.Name, partition), failure
		}
	}
	if len(done) > 0 {
		s.done(p, done)
	}
	if len(retry) > 0 {
		s.again(p, retry, cause)
	}
}

// done tells the machine that partitions have their marker, or are no more.
func (s *Sender) done(p parcel, partitions Partitions) {
	s.o.Metrics.pending(-partitions.Len())
	p.shard.Tell(func(m *Machine, now time.Time) coordinator.Output { return m.Marked(now, p.markers, partitions) })
}

// results are the codes of one producer's markers.
type results []kmsg.WriteTxnMarkersResponseMarkerTopic

func codesOf(resp *kmsg.WriteTxnMarkersResponse, producerID int64) results {
	if resp == nil {
		return nil
	}
	for i := range resp.Markers {
		if resp.Markers[i].ProducerID == producerID {
			return resp.Markers[i].Topics
		}
	}
	return nil
}

func (r results) of(topic string, partition int32) (code int16, answered bool) {
	for i := range r {
		if r[i].Topic != topic {
			continue
		}
		for j := range r[i].Partitions {
			if r[i].Partitions[j].Partition == partition {
				return r[i].Partitions[j].ErrorCode, true
			}
		}
	}
	return 0, false
}

// all tells whether every partition was answered with 0.
func (r results) all(partitions Partitions) bool {
	for _, t := range partitions {
		for _, partition := range t.Partitions {
			if code, answered := r.of(t.Name, partition); code != 0 || !answered {
				return false
			}
		}
	}
	return true
}
