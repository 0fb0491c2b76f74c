package server

import (
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeQuorum (55), versions 0 to 2.
//
// Behavior
//   - Describes the consensus on the metadata as partition 0 of __cluster_metadata: the leader with its epoch, the high watermark, and how far
//     the voters are. Offsets are raft's indexes.
//   - Asked for anything else, or for more than that, each partition of the request is UNKNOWN_TOPIC_OR_PARTITION.
//
// Version notes
//   - 1: when a voter has last fetched, and was last level with the leader (KIP-836).
//   - 2: error messages, "" on success; the listeners of the controllers (KIP-853).

const metadataTopic = "__cluster_metadata"

func (s *Server) handleDescribeQuorum(r *request) pending {
	req := r.body.(*kmsg.DescribeQuorumRequest)
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	resp.ErrorMessage = new("")
	right := len(req.Topics) == 1 && req.Topics[0].Topic == metadataTopic && len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			if right {
				rt.Partitions = append(rt.Partitions, s.describedQuorum())
				continue
			}
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode, rp.ErrorMessage = kerr.UnknownTopicOrPartition.Code, new(kerr.UnknownTopicOrPartition.Description)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if right {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID, node.Listeners = s.nodeID, s.controllerListeners(r)
		resp.Nodes = append(resp.Nodes, node)
	}
	return answer(resp)
}

func (s *Server) describedQuorum() kmsg.DescribeQuorumResponseTopicPartition {
	q := s.ctrl.Quorum()
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.ErrorMessage = new("")
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = q.LeaderID, q.LeaderEpoch, q.HighWatermark
	for _, id := range q.Voters {
		v := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		v.ReplicaID, v.LogEndOffset = id, q.End
		v.LastFetchTimestamp = time.Now().UnixMilli()
		v.LastCaughtUpTimestamp = v.LastFetchTimestamp
		p.CurrentVoters = append(p.CurrentVoters, v)
	}
	return p
}

// controllerListeners are where the controller of this node is reached: by whatever address the client has, if it listens on all. A node
// that is alone needs none.
func (s *Server) controllerListeners(r *request) []kmsg.DescribeQuorumResponseNodeListener {
	var rows []kmsg.DescribeQuorumResponseNodeListener
	for _, l := range s.listeners {
		if !l.controller {
			continue
		}
		row := kmsg.NewDescribeQuorumResponseNodeListener()
		host, port := splitAddr(l.socket.Addr())
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() && r.conn != nil {
			host, _ = splitAddr(r.conn.socket.LocalAddr())
		}
		row.Name, row.Host, row.Port = l.name, host, uint16(port)
		rows = append(rows, row)
	}
	return rows
}
