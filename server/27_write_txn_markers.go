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
//   - The answer has one row per producer; the markers of one producer are merged. What names no partition has no row.
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
	row         *kmsg.WriteTxnMarkersResponseMarkerTopicPartition
	pending     coordinator.Pending  // of a partition that a coordinator owns
	coordinated bool                 // pending is set
	partition   *partition.Partition // any other; nil if refused
	last        int64                // offset of the marker
}

// writeMarkers appends all markers of a request. It answers at once if all of them are committed by then; else the answer
// is what the function gives, or nil when its context ends. It is the local half of the marker sender too.
func (s *Server) writeMarkers(req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, func(context.Context) *kmsg.WriteTxnMarkersResponse) {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	now := time.Now()
	var open []markerWrite
	for i := range req.Markers {
		m := &req.Markers[i]
		for _, t := range m.Topics {
			if len(t.Partitions) == 0 {
				continue
			}
			at := markerRow(resp, m.ProducerID)
			row := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			row.Topic = t.Topic
			row.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for j, p := range t.Partitions {
				row.Partitions[j].Partition = p
				if w := s.writeMarker(m, t.Topic, p, &row.Partitions[j], now); w.coordinated || w.partition != nil {
					open = append(open, w)
				}
			}
			resp.Markers[at].Topics = append(resp.Markers[at].Topics, row)
		}
	}
	if len(open) == 0 {
		return resp, nil
	}
	return nil, func(ctx context.Context) *kmsg.WriteTxnMarkersResponse {
		bounded, cancel := context.WithTimeout(ctx, s.requestTimeout())
		defer cancel()
		for i := range open {
			s.settleMarker(bounded, &open[i])
		}
		if ctx.Err() != nil {
			return nil
		}
		return resp
	}
}

// markerRow gives the row of a producer, a new one if need be.
func markerRow(resp *kmsg.WriteTxnMarkersResponse, producerID int64) int {
	for i := range resp.Markers {
		if resp.Markers[i].ProducerID == producerID {
			return i
		}
	}
	row := kmsg.NewWriteTxnMarkersResponseMarker()
	row.ProducerID = producerID
	resp.Markers = append(resp.Markers, row)
	return len(resp.Markers) - 1
}

// writeMarker appends one marker. It sets the code of row, or gives back what is still to be waited for.
func (s *Server) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, topic string, index int32,
	row *kmsg.WriteTxnMarkersResponseMarkerTopicPartition, now time.Time) markerWrite {
	p := s.replicas.Get(topic, index)
	switch {
	case p == nil:
		row.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return markerWrite{}
	case m.ProducerID < 0 || m.ProducerEpoch < 0 || m.TransactionVersion < 0:
		row.ErrorCode = kerr.UnknownServerError.Code
		return markerWrite{}
	}
	if isCoordinated(topic) {
		w := markerWrite{row: row, coordinated: true}
		var err error
		w.pending, err = s.writeCoordinatedMarker(topic, index, groupcoordinator.Marker{
			Marker:     controlmarkers.Marker{Commit: m.Committed, CoordinatorEpoch: m.CoordinatorEpoch},
			ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, TransactionVersion: int16(m.TransactionVersion),
		})
		if err != nil {
			row.ErrorCode = kerr.NotLeaderForPartition.Code
			return markerWrite{}
		}
		if w.pending.Ready() {
			s.settleMarker(context.Background(), &w)
			return markerWrite{}
		}
		return w
	}
	last, err := p.WriteMarker(partition.MarkerRequest{
		ProducerID: m.ProducerID, Epoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch, Commit: m.Committed,
		TransactionVersion: int16(m.TransactionVersion), ExpectEpoch: -1, Now: now,
	})
	if err != nil {
		row.ErrorCode = s.codeOf(err, "topic", topic, "partition", index)
		return markerWrite{}
	}
	if hw, _ := p.Committed(); hw > last {
		return markerWrite{}
	}
	return markerWrite{row: row, partition: p, last: last}
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

// settleMarker waits for one marker, and sets its code.
func (s *Server) settleMarker(ctx context.Context, w *markerWrite) {
	var err error
	if w.coordinated {
		_, err = w.pending.Await(ctx)
	} else {
		err = w.partition.AwaitHW(ctx, w.last+1)
	}
	switch code := s.codeOf(err); code {
	case kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code:
		w.row.ErrorCode = kerr.NotLeaderForPartition.Code
	default:
		w.row.ErrorCode = code
	}
}
