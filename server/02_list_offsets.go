package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/partition"
)

// ListOffsets (2), versions 1 to 11.
//
// Behavior
//   - Finds an offset by time, or by one of the special timestamps below 0, up to what the isolation level lets see. What is
//     not found is -1 without an error.
//   - A partition that is named twice is INVALID_REQUEST, once. A special timestamp that the version does not have is
//     UNSUPPORTED_VERSION; topics have one row each. An isolation level that does not exist is UNKNOWN_SERVER_ERROR for whatever the request names.
//
// Version notes
//   - 2: isolation level. 4: leader epochs. 5: OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE before. 6: flexible. 7: maximum
//     timestamp (KIP-734). 8: earliest local (KIP-405). 9: latest tiered (KIP-1005). 10: a timeout for what lies elsewhere,
//     where nothing does here. 11: earliest that waits for its upload (KIP-1023).

// timestampVersions are the versions from which on special timestamps exist.
var timestampVersions = map[int64]int16{
	partition.LatestTimestamp:                1,
	partition.EarliestTimestamp:              1,
	partition.MaxTimestamp:                   7,
	partition.EarliestLocalTimestamp:         8,
	partition.LatestTieredTimestamp:          9,
	partition.EarliestPendingUploadTimestamp: 11,
}

func (s *Server) handleListOffsets(r *request) pending {
	req := r.body.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	twice := listedTwice(req)
	var rows topicRows
	if !isIsolation(req.IsolationLevel) {
		twice = nil // the request as such is wrong: an answer for each of its rows
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		at, found := len(resp.Topics), false
		if isIsolation(req.IsolationLevel) {
			if len(t.Partitions) == 0 {
				continue
			}
			at, found = rows.place(t.Topic, [16]byte{}, at)
		}
		if !found {
			resp.Topics = append(resp.Topics, kmsg.ListOffsetsResponseTopic{Topic: t.Topic})
		}
		rt := &resp.Topics[at]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			row := kmsg.NewListOffsetsResponseTopicPartition()
			row.Partition, row.Offset, row.Timestamp, row.LeaderEpoch = p.Partition, -1, -1, -1
			if again, named := twice[txnPartition{t.Topic, p.Partition}]; named {
				if again {
					continue
				}
				twice[txnPartition{t.Topic, p.Partition}] = true
				row.ErrorCode = kerr.InvalidRequest.Code
			} else if found, err := s.listOffset(req, t.Topic, p); err != nil {
				row.ErrorCode = s.listOffsetsCode(req.Version, err, t.Topic, p.Partition)
			} else {
				row.Offset, row.Timestamp, row.LeaderEpoch = found.Offset, found.Timestamp, found.LeaderEpoch
			}
			rt.Partitions = append(rt.Partitions, row)
		}
	}
	return answer(resp)
}

// listedTwice gives the partitions that a request names more than once.
func listedTwice(req *kmsg.ListOffsetsRequest) map[txnPartition]bool {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n < 2 {
		return nil
	}
	seen := make(map[txnPartition]struct{}, n)
	var twice map[txnPartition]bool
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			key := txnPartition{t.Topic, t.Partitions[j].Partition}
			if _, ok := seen[key]; ok {
				if twice == nil {
					twice = make(map[txnPartition]bool)
				}
				twice[key] = false
			}
			seen[key] = struct{}{}
		}
	}
	return twice
}

// listOffset answers for one partition.
func (s *Server) listOffset(req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition) (partition.FoundOffset, error) {
	isolation := partition.ReadUncommitted
	switch {
	case !isIsolation(req.IsolationLevel):
		return partition.FoundOffset{}, kerr.UnknownServerError
	case req.ReplicaID != consumerID: // as in Kafka: whoever is no consumer sees all
		isolation = partition.ReadLogEnd
	case req.IsolationLevel == 1:
		isolation = partition.ReadCommitted
	}
	if since, known := timestampVersions[p.Timestamp]; p.Timestamp < 0 && (!known || req.Version < since) {
		return partition.FoundOffset{}, kerr.UnsupportedVersion
	}
	replica := s.replicas.Get(topic, p.Partition)
	if replica == nil {
		return partition.FoundOffset{}, s.absent(topic, p.Partition)
	}
	return replica.OffsetFor(p.Timestamp, isolation, p.CurrentLeaderEpoch)
}

func (s *Server) listOffsetsCode(version int16, err error, topic string, index int32) int16 {
	code := s.codeOf(err, "topic", topic, "partition", index)
	if code == kerr.OffsetNotAvailable.Code && version < 5 {
		return kerr.LeaderNotAvailable.Code
	}
	return code
}
