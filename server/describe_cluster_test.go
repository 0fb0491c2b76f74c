package server

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// createABC makes topics a, b and c of 3, 1 and 5 partitions.
func createABC(c *client) {
	c.t.Helper()
	c.createTopic("a", 3)
	c.createTopic("b", 1)
	c.createTopic("c", 5)
}

// What Apache Kafka answers, by endpoint type.
func TestDescribeCluster(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	for version := range int16(3) {
		for _, authorized := range []bool{false, true} {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.Version, req.IncludeClusterAuthorizedOperations, req.IncludeFencedBrokers = version, authorized, true
			resp := do[*kmsg.DescribeClusterResponse](c, req)
			operations := int32(-2147483648)
			if authorized {
				operations = 8096
			}
			if resp.ErrorCode != 0 || resp.ErrorMessage != nil || len(resp.ClusterID) != 22 || resp.ControllerID != 1 || resp.ClusterAuthorizedOperations != operations {
				t.Errorf("version %d: %+v", version, resp)
			}
			if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port) != s.address() || resp.Brokers[0].Rack != nil {
				t.Errorf("version %d: brokers %+v, want that at %s", version, resp.Brokers, s.address())
			}
		}
	}
	for endpoint, want := range map[int8]string{
		0: "115 Unsupported endpoint type 0",
		2: "114 The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
		3: "115 Unsupported endpoint type 3",
	} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.Version, req.EndpointType, req.IncludeClusterAuthorizedOperations = 1, endpoint, true
		resp := do[*kmsg.DescribeClusterResponse](c, req)
		if got := fmt.Sprint(resp.ErrorCode, " ", *resp.ErrorMessage); got != want {
			t.Errorf("endpoint type %d: got %s, want %s", endpoint, got, want)
		}
		if resp.EndpointType != 1 || resp.ClusterID != "" || resp.ControllerID != -1 || len(resp.Brokers) != 0 || resp.ClusterAuthorizedOperations != -2147483648 {
			t.Errorf("endpoint type %d: %+v", endpoint, resp)
		}
	}
}

// describedParts draws an answer of DescribeTopicPartitions: a:0,1 with the error if there is one, then the next cursor.
func describedParts(resp *kmsg.DescribeTopicPartitionsResponse) string {
	var parts []string
	for _, t := range resp.Topics {
		var indexes []string
		for _, p := range t.Partitions {
			indexes = append(indexes, fmt.Sprint(p.Partition))
		}
		part := *t.Topic + ":" + strings.Join(indexes, ",")
		if t.ErrorCode != 0 {
			part += fmt.Sprintf("!%d", t.ErrorCode)
		}
		parts = append(parts, part)
	}
	if n := resp.NextCursor; n != nil {
		parts = append(parts, fmt.Sprintf("next %s:%d", n.Topic, n.Partition))
	}
	return strings.Join(parts, " ")
}

// The pages are those of Apache Kafka, but where a name is empty.
func TestDescribeTopicPartitionsPages(t *testing.T) {
	c := dial(t, startServer(t))
	createABC(c)
	for _, test := range []struct {
		topics string
		limit  int32
		cursor string
		want   string
	}{
		{"c a b", 2000, "", "a:0,1,2 b:0 c:0,1,2,3,4"},
		{"", 2000, "", "a:0,1,2 b:0 c:0,1,2,3,4"},
		{"b b zzz 0 bad/name", 2000, "", "0:!3 b:0 bad/name:!17 zzz:!3"},
		{"c a b", 2, "", "a:0,1 next a:2"},
		{"c a b", 3, "", "a:0,1,2 next b:0"},
		{"c a b", 4, "", "a:0,1,2 b:0 next c:0"},
		{"a aa b", 3, "", "a:0,1,2 next aa:0"},
		{"a b bb", 4, "", "a:0,1,2 b:0 next bb:0"},
		{"a b", 4, "", "a:0,1,2 b:0"},
		{"c", 0, "", "c:0 next c:1"},
		{"c", -1, "", "c:0 next c:1"},
		{"c a b", 3, "b:0", "b:0 c:0,1 next c:2"},
		{"c a b", 300, "c:3", "c:3,4"},
		{"c a b", 300, "c:99", "c:"},
		{"c a b", 300, "c:-1", "c:!42 a:!42 b:!42"},
		{"c a b", 300, "bb:3", "c:!42 a:!42 b:!42"},
		{"c bb b", 300, "bb:3", "bb:!3 c:0,1,2,3,4"},
		{"", 3, "a:1", "a:1,2 b:0 next c:0"},
		{"", 300, "bb:7", "c:0,1,2,3,4"},
		{"__consumer_offsets", 2, "", "__consumer_offsets:!3"},
	} {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = test.limit
		for _, name := range strings.Fields(test.topics) {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if test.cursor != "" {
			name, index, _ := strings.Cut(test.cursor, ":")
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: name}
			fmt.Sscan(index, &req.Cursor.Partition)
		}
		if got := describedParts(do[*kmsg.DescribeTopicPartitionsResponse](c, req)); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit, req.Topics = 10, []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "b"}, {Topic: ""}}
	resp := do[*kmsg.DescribeTopicPartitionsResponse](c, req)
	if got := describedParts(resp); got != ":!17 b:0" {
		t.Errorf("with an empty name: %s", got)
	}
	b := resp.Topics[1]
	p := b.Partitions[0]
	if b.TopicID == [16]byte{} || b.IsInternal || b.AuthorizedOperations != 3576 || p.LeaderID != 1 || p.LeaderEpoch != 0 ||
		!slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) || len(p.OfflineReplicas) != 0 || p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
		t.Errorf("topic %+v", b)
	}
}

func TestDescribeLogDirs(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	createABC(c)
	ask := func(version int16, topics []kmsg.DescribeLogDirsRequestTopic) string {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version, req.Topics = version, topics
		resp := do[*kmsg.DescribeLogDirsResponse](c, req)
		if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 || !filepath.IsAbs(resp.Dirs[0].Dir) || resp.Dirs[0].IsCordoned {
			t.Fatalf("version %d: %+v", version, resp)
		}
		if d := resp.Dirs[0]; (version >= 4) != (d.TotalBytes > 0 && d.UsableBytes > 0) {
			t.Errorf("version %d: %d of %d bytes usable", version, d.UsableBytes, d.TotalBytes)
		}
		var parts []string
		for _, row := range resp.Dirs[0].Topics {
			for _, p := range row.Partitions {
				parts = append(parts, fmt.Sprintf("%s-%d=%d", row.Topic, p.Partition, p.Size))
			}
		}
		return strings.Join(parts, " ")
	}
	for version := int16(1); version <= 5; version++ {
		if got := ask(version, nil); got != "a-0=0 a-1=0 a-2=0 b-0=0 c-0=0 c-1=0 c-2=0 c-3=0 c-4=0" {
			t.Errorf("version %d: all: %s", version, got)
		}
		if got := ask(version, []kmsg.DescribeLogDirsRequestTopic{}); got != "" {
			t.Errorf("version %d: none: %s", version, got)
		}
		if got := ask(version, []kmsg.DescribeLogDirsRequestTopic{
			{Topic: "c", Partitions: []int32{4, 1, 1}}, {Topic: "none", Partitions: []int32{0}}, {Topic: "a", Partitions: []int32{2, 9}}, {Topic: "b"}, {Topic: "a", Partitions: []int32{1, 2}},
		}); got != "a-1=0 a-2=0 c-1=0 c-4=0" {
			t.Errorf("version %d: some: %s", version, got)
		}
	}
}
