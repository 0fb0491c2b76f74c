package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs (34), versions 1 and 2.
//
// Behavior
//   - Moves replicas to a log directory, named by its absolute path as DescribeLogDirs gives it: LOG_DIR_NOT_FOUND for any other, and after that
//     UNKNOWN_TOPIC_OR_PARTITION for a replica that is not here. There is one directory, where all replicas are.
//   - Of a partition that is named for several directories the last one counts. Each partition is answered once.
//
// Version notes
//   - 2: flexible.

func (s *Server) handleAlterReplicaLogDirs(r *request) pending {
	req := r.body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	type replica struct {
		topic string
		index int32
	}
	rows := map[string]int{}            // of a topic in resp.Topics
	targets := make(map[replica]string) // the directory
	for _, dir := range req.Dirs {
		for _, t := range dir.Topics {
			for _, index := range t.Partitions {
				to := replica{t.Topic, index}
				if _, ok := targets[to]; !ok {
					addLogDirRow(resp, rows, t.Topic, index)
				}
				targets[to] = dir.Dir
			}
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.ErrorCode = errorCode(s.moveReplica(targets[replica{t.Topic, p.Partition}], t.Topic, p.Partition))
		}
	}
	return answer(resp)
}

func addLogDirRow(resp *kmsg.AlterReplicaLogDirsResponse, rows map[string]int, topic string, index int32) {
	row, ok := rows[topic]
	if !ok {
		row = len(resp.Topics)
		rows[topic] = row
		rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
		rt.Topic = topic
		resp.Topics = append(resp.Topics, rt)
	}
	rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
	rp.Partition = index
	resp.Topics[row].Partitions = append(resp.Topics[row].Partitions, rp)
}

// moveReplica brings a replica to a log directory.
func (s *Server) moveReplica(dir, topic string, index int32) error {
	switch {
	case dir != s.absoluteLogDir():
		return kerr.LogDirNotFound
	case s.replicas.Get(topic, index) == nil:
		return kerr.UnknownTopicOrPartition
	}
	return nil
}
