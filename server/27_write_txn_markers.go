package server

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/controlmarkers"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/partition"
	"oncelog/txncoordinator"
)

// WriteTxnMarkers (27), versions 1 and 2.
//
// Behavior
//   - Writes the marker that ends a producer's transaction into partitions that this broker leads, and answers once all
//     of them are committed. Partitions fare independently: UNKNOWN_TOPIC_OR_PARTITION for one that has no replica here,
//     NOT_LEADER_OR_FOLLOWER for one that another broker leads, INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED for a marker
//     that is out of date.
//   - The answer has one row per producer; the markers of one producer are merged, and a partition has one row. What names
//     no partition has no row.
//   - In __consumer_offsets and __transaction_state the marker is written by the coordinator that owns the partition.
//     As long as it loads, or has gone, that is NOT_LEADER_OR_FOLLOWER.
//   - A producer id, epoch or transaction version below 0 is UNKNOWN_SERVER_ERROR.
//
// Version notes: v1 is the first one that 4.x serves, and flexible. v2 adds the transaction version of a marker, which
// says which producer epochs are out of date (KIP-1228); all above 2 count as 2.

func (s *Server) handleWriteTxnMarkers(r *request) pending {
	resp, wait := s.writeMarkers(r.body.(*kmsg.WriteTxnMarkersRequest))
	if resp != nil {
		return answer(resp)
	}
	return await(func(ctx context.Context) kmsg.Response {
		if resp := wait(ctx); resp != nil {
			return resp
		}
		return nil
	})
}

// markerWrite is one marker on its way into one partition.
type markerWrite struct {
	producerID int64
	topic      string
	index      int32
	code       int16 // what became of it

	pending     coordinator.Pending  // of a partition that a coordinator owns
	coordinated bool                 // pending is set
	partition   *partition.Partition // any other that is still to be committed
	last        int64                // offset of the marker
}

func (w *markerWrite) open() bool { return w.coordinated || w.partition != nil }

// writeMarkers appends all markers of a request. It answers at once if all of them are committed by then; else the answer
// is what the function gives, or nil when its context ends. It is the local half of the marker sender too.
func (s *Server) writeMarkers(req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, func(context.Context) *kmsg.WriteTxnMarkersResponse) {
	now := time.Now()
	var writes []markerWrite
	waits := false
	for i := range req.Markers {
		m := &req.Markers[i]
		named := make(map[txnPartition]bool)
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if named[txnPartition{t.Topic, p}] {
					continue
				}
				named[txnPartition{t.Topic, p}] = true
				w := s.writeMarker(m, t.Topic, p, now)
				waits = waits || w.open()
				writes = append(writes, w)
			}
		}
	}
	if !waits {
		return markersAnswer(req, writes), nil
	}
	return nil, func(ctx context.Context) *kmsg.WriteTxnMarkersResponse {
		bounded, cancel := context.WithTimeout(ctx, s.requestTimeout())
		defer cancel()
		for i := range writes {
			if writes[i].open() {
				s.settleMarker(bounded, &writes[i])
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		return markersAnswer(req, writes)
	}
}

// markersAnswer has a row for each producer, and in it one for each partition, in which the last of its markers counts.
func markersAnswer(req *kmsg.WriteTxnMarkersRequest, writes []markerWrite) *kmsg.WriteTxnMarkersResponse {
	type producerTopic struct {
		producerID int64
		topic      string
	}
	type producerPartition struct {
		producerTopic
		index int32
	}
	producers, topics, partitions := make(map[int64]int), make(map[producerTopic]int), make(map[producerPartition]int)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for i := range writes {
		w := &writes[i]
		at, ok := producers[w.producerID]
		if !ok {
			at = len(resp.Markers)
			producers[w.producerID] = at
			resp.Markers = append(resp.Markers, kmsg.WriteTxnMarkersResponseMarker{ProducerID: w.producerID})
		}
		producer := &resp.Markers[at]
		t := producerTopic{w.producerID, w.topic}
		if at, ok = topics[t]; !ok {
			at = len(producer.Topics)
			topics[t] = at
			producer.Topics = append(producer.Topics, kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: w.topic})
		}
		topic := &producer.Topics[at]
		if at, ok = partitions[producerPartition{t, w.index}]; !ok {
			at = len(topic.Partitions)
			partitions[producerPartition{t, w.index}] = at
			topic.Partitions = append(topic.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: w.index})
		}
		topic.Partitions[at].ErrorCode = w.code
	}
	return resp
}

// writeMarker appends one marker. What it gives back is open if it is still to be waited for.
func (s *Server) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, topic string, index int32, now time.Time) markerWrite {
	w := markerWrite{producerID: m.ProducerID, topic: topic, index: index}
	p := s.replicas.Get(topic, index)
	switch {
	case p == nil:
		w.code = kerr.UnknownTopicOrPartition.Code
		return w
	case m.ProducerID < 0 || m.ProducerEpoch < 0 || m.TransactionVersion < 0:
		w.code = kerr.UnknownServerError.Code
		return w
	}
	if isCoordinated(topic) {
		pending, err := s.writeCoordinatedMarker(topic, index, groupcoordinator.Marker{
			Marker:     controlmarkers.Marker{Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch},
			ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, TransactionVersion: int16(m.TransactionVersion),
		})
		if err != nil {
			w.code = kerr.NotLeaderForPartition.Code
			return w
		}
		w.pending, w.coordinated = pending, true
		if pending.Ready() {
			s.settleMarker(context.Background(), &w)
		}
		return w
	}
	last, err := p.WriteMarker(partition.MarkerRequest{
		ProducerID: m.ProducerID, Epoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch, Commit: m.Committed,
		TransactionVersion: int16(m.TransactionVersion), ExpectEpoch: -1, Now: now,
	})
	if err != nil {
		w.code = s.codeOf(err, "topic", topic, "partition", index)
	} else if hw, _ := p.Committed(); hw <= last {
		w.partition, w.last = p, last
	}
	return w
}

// writeCoordinatedMarker has the coordinator of a partition write a marker into it.
func (s *Server) writeCoordinatedMarker(topic string, index int32, k groupcoordinator.Marker) (coordinator.Pending, error) {
	if topic == offsetsTopic {
		shard, err := s.groups.Get(index)
		if err != nil {
			return coordinator.Pending{}, err
		}
		return shard.Do(func(m *groupcoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.WriteMarker(now, to, k)
		}), nil
	}
	shard, err := s.txns.Get(index)
	if err != nil {
		return coordinator.Pending{}, err
	}
	return shard.Do(func(_ *txncoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
		out := to.Reply(nil)
		out.Batch = coordinator.Batch{
			Control: true, Marker: k.Marker, ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch,
			TransactionVersion: k.TransactionVersion,
		}
		return out
	}), nil
}

// settleMarker waits for one marker, which is open no more then, and sets its code.
func (s *Server) settleMarker(ctx context.Context, w *markerWrite) {
	var err error
	if w.coordinated {
		_, err = w.pending.Await(ctx)
	} else {
		err = w.partition.AwaitHW(ctx, w.last+1)
	}
	w.coordinated, w.partition = false, nil
	switch w.code = s.codeOf(err); w.code {
	case kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code:
		w.code = kerr.NotLeaderForPartition.Code
	}
}
