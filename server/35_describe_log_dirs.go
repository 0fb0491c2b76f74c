package server

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/partition"
)

// DescribeLogDirs (35), versions 1 to 5.
//
// Behavior
//   - Gives each log directory by its absolute path, with the replicas in it: the bytes of their segments and by how much
//     the high watermark is ahead of their end (0 for a leader).
//   - Null topics ask for all replicas, an empty list for none. Partitions that are not here are left out silently, and so
//     are topics of which none is left. Naming one twice answers it once.
//   - Topics and partitions come ascending; Kafka's order is that of a hash map.
//
// Version notes
//   - 3: ErrorCode of the whole answer (KIP-784).
//   - 4: size and free bytes of the volume, -1 if unknown (KIP-827).
//   - 5: IsCordoned (KIP-1066): no directory can be cordoned here.

func (s *Server) handleDescribeLogDirs(r *request) pending {
	req := r.body.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = s.absoluteLogDir()
	if req.Version >= 4 {
		total, usable, err := s.fs.Usage(dir.Dir)
		if err != nil {
			dir.ErrorCode = kerr.KafkaStorageError.Code
		} else {
			dir.TotalBytes, dir.UsableBytes = total, usable
		}
	}
	dir.Topics = groupReplicas(s.describedReplicas(req.Topics))
	resp.Dirs = append(resp.Dirs, dir)
	return answer(resp)
}

// absoluteLogDir is the log directory as clients know it.
func (s *Server) absoluteLogDir() string {
	if abs, err := filepath.Abs(s.logDir()); err == nil {
		return abs
	}
	return s.logDir()
}

// describedReplicas gives the replicas here that a request names, in no order and perhaps more than once.
func (s *Server) describedReplicas(topics []kmsg.DescribeLogDirsRequestTopic) []*partition.Partition {
	if topics == nil {
		return slices.Collect(s.replicas.All())
	}
	var found []*partition.Partition
	for _, t := range topics {
		for _, index := range t.Partitions {
			if p := s.replicas.Get(t.Topic, index); p != nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// groupReplicas makes the rows of an answer, ascending and each once.
func groupReplicas(replicas []*partition.Partition) []kmsg.DescribeLogDirsResponseDirTopic {
	slices.SortFunc(replicas, func(a, b *partition.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.Index(), b.Index()))
	})
	var rows []kmsg.DescribeLogDirsResponseDirTopic
	for _, p := range slices.Compact(replicas) {
		if n := len(rows); n == 0 || rows[n-1].Topic != p.Topic() {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic()
			rows = append(rows, t)
		}
		row := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		o := p.Offsets()
		row.Partition, row.Size, row.OffsetLag = p.Index(), p.Size(), max(o.HW-o.End, 0)
		t := &rows[len(rows)-1]
		t.Partitions = append(t.Partitions, row)
	}
	return rows
}
