package server

import "github.com/twmb/franz-go/pkg/kmsg"

// AlterReplicaLogDirs (34), versions 1 and 2.
//
// Behavior
//   - Moves replicas to a log directory, named by its absolute path as DescribeLogDirs gives it: LOG_DIR_NOT_FOUND for any other,
//     KAFKA_STORAGE_ERROR for one that is offline, then UNKNOWN_TOPIC_OR_PARTITION, and REPLICA_NOT_AVAILABLE for a replica that is offline.
//   - The answer says that the move has been taken on. While it is under way DescribeLogDirs shows the copy; when it is done, the
//     partition's clients find it again as after a change of leader.
//   - Of a partition that is named for several directories the last one counts. Each partition is answered once.
//
// Version notes
//   - 2: flexible.
//
// Where we differ: in Kafka the copy takes over without a moment in which the partition has no leader, and goes on being made after a restart. A move
// that a stop cuts short is forgotten here.

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
