package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/protocol"
)

// groupShard is a partition of the group coordinator that this node leads.
type groupShard = coordinator.Shard[*groupcoordinator.Machine]

// groupOperations are the operations that an ACL can allow on a group, as the bit field of DescribeGroups: read,
// delete, describe, describe configs, alter configs. Without an authorizer everybody may do all of them.
const groupOperations = 1<<kmsg.ACLOperationRead | 1<<kmsg.ACLOperationDelete | 1<<kmsg.ACLOperationDescribe |
	1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs

// groupPartition is the partition of the offsets topic that a group lives on.
func (s *Server) groupPartition(group string) int32 {
	return protocol.CoordinatorPartition(group, s.internalPartitions(offsetsTopic))
}

// groupShard gives the shard that owns a group, or says why there is none here.
func (s *Server) groupShard(group string) (*groupShard, error) {
	return s.groups.Get(s.groupPartition(group))
}

// namedGroupShard is groupShard for the requests that Kafka refuses for a group without a name. The others are older
// than that rule.
func (s *Server) namedGroupShard(group string) (*groupShard, error) {
	if group == "" {
		return nil, kerr.InvalidGroupID
	}
	return s.groupShard(group)
}

// groupCode is the code for an error of the group coordinator. A write that is not committed in time may still be one
// day: the client looks for the coordinator and tries again.
func (s *Server) groupCode(err error) int16 {
	code := s.codeOf(err)
	if code == kerr.RequestTimedOut.Code {
		return kerr.CoordinatorNotAvailable.Code
	}
	return code
}

// awaitGroupWrite is awaitCoordinated for an operation that waits for nothing but its own record, which
// offsets.commit.timeout.ms bounds.
func (s *Server) awaitGroupWrite(p coordinator.Pending, f func(v any, err error) kmsg.Response) pending {
	if p.Ready() {
		return answer(f(p.Await(context.Background())))
	}
	return await(func(ctx context.Context) kmsg.Response { return s.groupWrite(ctx, p, f) })
}

func (s *Server) groupWrite(ctx context.Context, p coordinator.Pending, f func(v any, err error) kmsg.Response) kmsg.Response {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg().Int("offsets.commit.timeout.ms"))*time.Millisecond)
	defer cancel()
	return f(p.Await(ctx))
}

// groupClient is the sender of a request as group members show it.
func (s *Server) groupClient(r *request) groupcoordinator.Client {
	c := groupcoordinator.Client{ID: r.header.ClientID, Host: "/127.0.0.1"}
	if r.conn != nil {
		host, _ := splitAddr(r.conn.socket.RemoteAddr())
		c.Host = "/" + host
	}
	return c
}

// committable gives the topic of which offsets are committed, or the code that refuses all its partitions. From the
// version with topic ids on a topic is known by its id only.
func committable(im *cluster.Image, byID bool, name string, id [16]byte) (*cluster.Topic, int16) {
	if byID {
		if t := im.TopicByID(id); t != nil {
			return t, 0
		}
		return nil, kerr.UnknownTopicID.Code
	}
	if t := im.Topic(name); t != nil {
		return t, 0
	}
	return nil, kerr.UnknownTopicOrPartition.Code
}

// topicRows finds the row of a topic in an answer: by its id in the versions that have ids, by its name in the others.
type topicRows struct {
	byID bool
	at   map[topicKey]int
}

type topicKey struct {
	name string
	id   [16]byte
}

// place gives the row of a topic, or notes that the next one, which is still to be added, is.
func (rs *topicRows) place(name string, id [16]byte, next int) (at int, found bool) {
	key := topicKey{name: name}
	if rs.byID {
		key = topicKey{id: id}
	}
	if at, found = rs.at[key]; found {
		return at, true
	}
	if rs.at == nil {
		rs.at = make(map[topicKey]int)
	}
	rs.at[key] = next
	return next, false
}

// hasPartition tells whether a topic has a partition of that number.
func hasPartition(t *cluster.Topic, partition int32) bool {
	return partition >= 0 && int(partition) < len(t.Partitions)
}

// groupCollector tells of the groups that this node coordinates, when it is asked.
type groupCollector struct {
	host *coordinator.Host[*groupcoordinator.Machine]
}

var groupStates = prometheus.NewDesc("oncelog_groups", "Groups that this node coordinates, by state.", []string{"state"}, nil)

func (c groupCollector) Describe(ch chan<- *prometheus.Desc) { ch <- groupStates }

func (c groupCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWait)
	defer cancel()
	sum := groupcoordinator.Summary{}
	shards, _ := c.host.Shards()
	for _, shard := range shards {
		v, err := shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
			return m.Summarize(to)
		}).Await(ctx)
		if err != nil {
			continue
		}
		for state, n := range v.(groupcoordinator.Summary) {
			sum[state] += n
		}
	}
	for state, n := range sum {
		ch <- prometheus.MustNewConstMetric(groupStates, prometheus.GaugeValue, float64(n), state)
	}
}
