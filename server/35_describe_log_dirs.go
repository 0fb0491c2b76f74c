package server

import (
	"cmp"
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
//   - A directory that cannot be used is KAFKA_STORAGE_ERROR, with nothing in it. A replica that is moving is in both: its copy is the future one,
//     with the bytes that have been copied.
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
	replicas := s.describedReplicas(req.Topics)
	moving := s.replicas.Moves()
	for _, d := range s.replicas.Directories() {
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir = d.Path
		if d.Err != nil {
			dir.ErrorCode = kerr.KafkaStorageError.Code
			resp.Dirs = append(resp.Dirs, dir)
			continue
		}
		if req.Version >= 4 {
			total, usable, err := s.fs.Usage(d.Path)
			if err != nil {
				dir.ErrorCode = kerr.KafkaStorageError.Code
			} else {
				dir.TotalBytes, dir.UsableBytes = total, usable
			}
		}
		dir.Topics = groupReplicas(s.rowsIn(d.ID, replicas, moving))
		resp.Dirs = append(resp.Dirs, dir)
	}
	return answer(resp)
}

// describedReplicas gives the replicas here that a request names, each once and ascending.
func (s *Server) describedReplicas(topics []kmsg.DescribeLogDirsRequestTopic) []*partition.Partition {
	found := slices.Collect(s.replicas.All())
	if topics != nil {
		found = nil
		for _, t := range topics {
			for _, index := range t.Partitions {
				if p := s.replicas.Get(t.Topic, index); p != nil {
					found = append(found, p)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b *partition.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.Index(), b.Index()))
	})
	return slices.Compact(found)
}

// logDirRow is a replica, or the copy of one that is moving.
type logDirRow struct {
	topic string
	row   kmsg.DescribeLogDirsResponseDirTopicPartition
}

// rowsIn describes what of some replicas is in a directory.
func (s *Server) rowsIn(dir [16]byte, replicas []*partition.Partition, moving []partition.Move) (rows []logDirRow) {
	for _, p := range replicas {
		if s.replicas.DirectoryOf(p) == dir {
			o := p.Offsets()
			rows = append(rows, newLogDirRow(p, p.Size(), max(o.HW-o.End, 0), false))
		}
		for _, m := range moving {
			if m.Partition == p && m.Directory == dir {
				rows = append(rows, newLogDirRow(p, m.Bytes, max(p.Offsets().End-m.End, 0), true))
			}
		}
	}
	return rows
}

func newLogDirRow(p *partition.Partition, size, lag int64, future bool) logDirRow {
	row := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	row.Partition, row.Size, row.OffsetLag, row.IsFuture = p.Index(), size, lag, future
	return logDirRow{p.Topic(), row}
}

// groupReplicas puts the rows of each topic together.
func groupReplicas(replicas []logDirRow) (topics []kmsg.DescribeLogDirsResponseDirTopic) {
	for _, r := range replicas {
		if n := len(topics); n == 0 || topics[n-1].Topic != r.topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = r.topic
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, r.row)
	}
	return topics
}
