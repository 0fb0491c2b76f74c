package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// creates makes a CreateTopics request of one partition each.
func creates(version int16, names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(version)
	req.TimeoutMillis = 10000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (c *client) create(names ...string) {
	c.t.Helper()
	for _, t := range do[*kmsg.CreateTopicsResponse](c, creates(7, names...)).Topics {
		if t.ErrorCode != 0 {
			c.t.Fatalf("topic %s: %d %v", t.Topic, t.ErrorCode, t.ErrorMessage)
		}
	}
}

// metadata asks for topics by name (string) or id ([16]byte); nil topics is the null list.
func metadata(version int16, auto bool, topics ...any) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(version)
	req.AllowAutoTopicCreation = auto
	for _, x := range topics {
		t := kmsg.NewMetadataRequestTopic()
		switch x := x.(type) {
		case string:
			t.Topic = &x
		case [16]byte:
			t.TopicID = x
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// shown is an answer in short: topics in order as name*partitions, or name:ERROR.
func shown(resp *kmsg.MetadataResponse) string {
	var b strings.Builder
	for _, t := range resp.Topics {
		name := "null"
		if t.Topic != nil {
			name = fmt.Sprintf("%q", *t.Topic)
		}
		if t.IsInternal {
			name += "(internal)"
		}
		if t.ErrorCode != 0 {
			fmt.Fprintf(&b, "%s:%s ", name, kerr.ErrorForCode(t.ErrorCode).(*kerr.Error).Message)
			continue
		}
		fmt.Fprintf(&b, "%s*%d ", name, len(t.Partitions))
	}
	return strings.TrimSpace(b.String())
}

// TestMetadataByName: order, duplicates, unknown and impossible names, in every version.
func TestMetadataByName(t *testing.T) {
	s := startServer(t, "auto.create.topics.enable=false")
	c := dial(t, s)
	c.create("b", "a")
	for v := int16(0); v <= 13; v++ {
		resp := do[*kmsg.MetadataResponse](c, metadata(v, true, "a/b", "b", "nope", "a", "b", "", "__consumer_offsets"))
		internal := "(internal)"
		if v == 0 {
			internal = ""
		}
		want := `"b"*1 "a"*1 "a/b":INVALID_TOPIC_EXCEPTION "nope":UNKNOWN_TOPIC_OR_PARTITION "":INVALID_TOPIC_EXCEPTION ` +
			`"__consumer_offsets"` + internal + `:UNKNOWN_TOPIC_OR_PARTITION`
		if got := shown(resp); got != want {
			t.Errorf("v%d: %s\nwant %s", v, got, want)
		}
		host, port := splitAddr(c.conn.RemoteAddr())
		if len(resp.Brokers) != 1 || resp.Brokers[0].Host != host || resp.Brokers[0].Port != port || resp.Brokers[0].Rack != nil {
			t.Errorf("v%d: brokers %+v, want %s:%d", v, resp.Brokers, host, port)
		}
		if v >= 1 && resp.ControllerID != 1 || v >= 2 && (resp.ClusterID == nil || *resp.ClusterID != s.image().ClusterID) {
			t.Errorf("v%d: controller %d of cluster %v", v, resp.ControllerID, resp.ClusterID)
		}
		p := resp.Topics[0].Partitions[0]
		if p.Leader != 1 || !slices.Equal(p.Replicas, []int32{1}) || !slices.Equal(p.ISR, []int32{1}) || p.OfflineReplicas != nil || v >= 7 && p.LeaderEpoch != 0 {
			t.Errorf("v%d: partition %+v", v, p)
		}
	}
	// No names: all topics, or none.
	for v, want := range map[int16]string{0: `"a"*1 "b"*1`, 1: `"a"*1 "b"*1`, 13: `"a"*1 "b"*1`} {
		if got := shown(do[*kmsg.MetadataResponse](c, metadata(v, true))); got != want {
			t.Errorf("v%d, null: %s", v, got)
		}
	}
	none := metadata(9, true)
	none.Topics = []kmsg.MetadataRequestTopic{}
	if got := shown(do[*kmsg.MetadataResponse](c, none)); got != "" {
		t.Errorf("empty list: %s", got)
	}
}

// TestMetadataByID: ids count from version 12 on, and nothing but them if there is one.
func TestMetadataByID(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.create("a", "b")
	id, unknown := s.image().Topic("a").ID, [16]byte{9}
	for v := int16(12); v <= 13; v++ {
		if got := shown(do[*kmsg.MetadataResponse](c, metadata(v, true, "b", id, unknown, id, unknown))); got != `null:UNKNOWN_TOPIC_ID "a"*1` {
			t.Errorf("v%d: %s", v, got)
		}
	}
	for v := int16(10); v <= 13; v++ {
		topics := []any{"b", id}
		want := `"b":INVALID_REQUEST "":INVALID_REQUEST`
		if v >= 12 {
			topics[1] = nil // neither name nor id
		}
		resp := do[*kmsg.MetadataResponse](c, metadata(v, true, topics...))
		if got := shown(resp); got != want || resp.Brokers != nil || resp.ControllerID != -1 {
			t.Errorf("v%d: %s, %+v", v, got, resp)
		}
		if v == 13 && resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("v%d: error %d", v, resp.ErrorCode)
		}
	}
}

// TestMetadataOperations: without an authorizer everything is allowed, and told only if asked for.
func TestMetadataOperations(t *testing.T) {
	c := dial(t, startServer(t, "auto.create.topics.enable=false"))
	c.create("a")
	req := metadata(10, true, "a", "nope")
	resp := do[*kmsg.MetadataResponse](c, req)
	if resp.AuthorizedOperations != -2147483648 || resp.Topics[0].AuthorizedOperations != -2147483648 {
		t.Errorf("not asked for: %d, %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations)
	}
	req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
	resp = do[*kmsg.MetadataResponse](c, req)
	if resp.AuthorizedOperations != 8096 || resp.Topics[0].AuthorizedOperations != 3576 || resp.Topics[1].AuthorizedOperations != 3576 {
		t.Errorf("operations %d, %d, %d", resp.AuthorizedOperations, resp.Topics[0].AuthorizedOperations, resp.Topics[1].AuthorizedOperations)
	}
}

// led tells whether a topic can be written to on this node right now.
func (s *Server) led(topic string) error {
	t := s.image().Topic(topic)
	if t == nil {
		return fmt.Errorf("topic %s is not in the image", topic)
	}
	for i := range t.Partitions {
		p := s.replicas.Get(topic, int32(i))
		if p == nil {
			return fmt.Errorf("replica %s-%d is not there", topic, i)
		}
		if got, want := p.Offsets().LeaderEpoch, t.Partitions[i].LeaderEpoch; p.Err() != nil || got != want {
			return fmt.Errorf("replica %s-%d is at epoch %d, want %d: %v", topic, i, got, want, p.Err())
		}
	}
	return nil
}

// TestAnswersWaitForTheReplicas: a topic that an answer says has been made can be written to; one that was deleted is gone.
func TestAnswersWaitForTheReplicas(t *testing.T) {
	s := startServer(t, "num.partitions=3")
	c := dial(t, s)
	for i := range 20 {
		name := fmt.Sprint("t", i)
		c.create(name)
		if err := s.led(name); err != nil {
			t.Fatal(err)
		}
	}
	more := kmsg.NewPtrCreatePartitionsRequest()
	more.TimeoutMillis = 10000
	grow := kmsg.NewCreatePartitionsRequestTopic()
	grow.Topic, grow.Count = "t0", 5
	more.Topics = append(more.Topics, grow)
	if resp := do[*kmsg.CreatePartitionsResponse](c, more); resp.Topics[0].ErrorCode != 0 {
		t.Fatal(resp.Topics[0].ErrorCode)
	}
	if err := s.led("t0"); err != nil || len(s.image().Topic("t0").Partitions) != 5 {
		t.Fatal(err)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.SetVersion(5)
	del.TimeoutMillis, del.TopicNames = 10000, []string{"t0"}
	if resp := do[*kmsg.DeleteTopicsResponse](c, del); resp.Topics[0].ErrorCode != 0 {
		t.Fatal(resp.Topics[0].ErrorCode)
	}
	if s.replicas.Get("t0", 0) != nil {
		t.Error("deleted replica is still there")
	}
	c.create("t0")
	if err := s.led("t0"); err != nil {
		t.Error(err)
	}
}

// TestAutoCreate: only where broker and client allow it, and behind the answer; a coordinator's topic as the coordinator wants it; never what
// cannot be a topic.
func TestAutoCreate(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	const unknown = ":UNKNOWN_TOPIC_OR_PARTITION"
	for _, step := range []struct {
		req         *kmsg.MetadataRequest
		first, then string
	}{
		{metadata(4, false, "a"), `"a"` + unknown, `"a"` + unknown},
		{metadata(3, false, "a"), `"a"` + unknown, `"a"*1`},
		{metadata(9, true, "c.d", "c_d"), `"c.d"` + unknown + ` "c_d"` + unknown, `"c.d"*1 "c_d"*1`},
		{metadata(9, true, "c-d", "e.f"), `"c-d"` + unknown + ` "e.f"` + unknown, `"c-d"*1 "e.f"*1`},
		{metadata(9, true, "e_f", "g"), `"e_f"` + unknown + ` "g"` + unknown, `"g"*1 "e_f"` + unknown},
		{metadata(9, true, "__consumer_offsets"), `"__consumer_offsets"(internal)` + unknown, `"__consumer_offsets"(internal)*2`},
		{metadata(9, true, "__cluster_metadata", "a/b"),
			`"__cluster_metadata"` + unknown + ` "a/b":INVALID_TOPIC_EXCEPTION`, `"__cluster_metadata"` + unknown + ` "a/b":INVALID_TOPIC_EXCEPTION`},
	} {
		if got := shown(do[*kmsg.MetadataResponse](c, step.req)); got != step.first {
			t.Errorf("%s, want %s", got, step.first)
		}
		waitFor(t, step.then, func() bool { return shown(do[*kmsg.MetadataResponse](c, step.req)) == step.then })
	}
	if got := s.image().Config(kmsg.ConfigResourceTypeTopic, "__consumer_offsets")["cleanup.policy"]; got != "compact" {
		t.Errorf("offsets topic has cleanup.policy %q", got)
	}
}

// TestDeletionDisabled: the code depends on the version.
func TestDeletionDisabled(t *testing.T) {
	c := dial(t, startServer(t, "delete.topic.enable=false"))
	c.create("a")
	for v := int16(1); v <= 6; v++ {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.SetVersion(v)
		req.TimeoutMillis, req.TopicNames = 1000, []string{"a"}
		e := kmsg.NewDeleteTopicsRequestTopic()
		e.Topic = kmsg.StringPtr("a")
		req.Topics = append(req.Topics, e)
		want := kerr.TopicDeletionDisabled.Code
		if v < 3 {
			want = kerr.InvalidRequest.Code
		}
		if resp := do[*kmsg.DeleteTopicsResponse](c, req); len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != want {
			t.Errorf("v%d: %+v", v, resp.Topics)
		}
	}
}

// TestConfigsTakeEffectAtOnce: an answer to AlterConfigs or IncrementalAlterConfigs means that the configs hold.
func TestConfigsTakeEffectAtOnce(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.create("a", "b")
	set := func(kind kmsg.ConfigResourceType, name, key, value string) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		k := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		k.Name, k.Value = key, &value
		r.Configs = append(r.Configs, k)
		req.Resources = append(req.Resources, r)
		if resp := do[*kmsg.IncrementalAlterConfigsResponse](c, req); resp.Resources[0].ErrorCode != 0 {
			t.Fatalf("%s %s: %s", name, key, *resp.Resources[0].ErrorMessage)
		}
	}
	set(kmsg.ConfigResourceTypeTopic, "a", "max.message.bytes", "1000")
	set(kmsg.ConfigResourceTypeBroker, "", "message.max.bytes", "2000")
	if a, b := s.topicConfig("a").MaxMessageBytes, s.topicConfig("b").MaxMessageBytes; a != 1000 || b != 2000 {
		t.Errorf("max.message.bytes %d and %d", a, b)
	}
	set(kmsg.ConfigResourceTypeBroker, "1", "message.max.bytes", "3000")
	if got := s.cfg().Int("message.max.bytes"); got != 3000 {
		t.Errorf("message.max.bytes %d", got)
	}
	req := kmsg.NewPtrAlterConfigsRequest()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "a"
	req.Resources = append(req.Resources, r)
	if resp := do[*kmsg.AlterConfigsResponse](c, req); resp.Resources[0].ErrorCode != 0 {
		t.Fatal(*resp.Resources[0].ErrorMessage)
	}
	if a := s.topicConfig("a").MaxMessageBytes; a != 3000 {
		t.Errorf("max.message.bytes %d after AlterConfigs without any", a)
	}
}

// TestRestartRaisesEpochs: metadata, configs and topic ids outlive the process, leader epochs grow, and producer ids go on behind the last block.
func TestRestartRaisesEpochs(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	var ids []int64
	var topic [16]byte
	for life := range 3 {
		s, err := New(Options{Config: cfg, Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := dial(t, s)
		if life == 0 {
			c.create("a")
			topic = s.image().Topic("a").ID
		}
		resp := do[*kmsg.MetadataResponse](c, metadata(12, false, topic))
		if p := resp.Topics[0].Partitions[0]; *resp.Topics[0].Topic != "a" || p.LeaderEpoch != int32(2*life) {
			t.Errorf("life %d: %+v", life, resp.Topics[0])
		}
		if err := s.led("a"); err != nil {
			t.Error(err)
		}
		ids = append(ids, do[*kmsg.InitProducerIDResponse](c, kmsg.NewPtrInitProducerIDRequest()).ProducerID)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if !slices.Equal(ids, []int64{0, 1000, 2000}) {
		t.Errorf("producer ids %v", ids)
	}
}
