package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// findCoordinator waits for the coordinators of all partitions that the internal topics have in tests.
func (c *client) findCoordinator() {
	c.t.Helper()
	for kind := range int8(2) {
		for _, key := range []string{"x", "a"} { // of partition 0 and 1
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKey = 3, kind, key
			waitFor(c.t, "a coordinator", func() bool { return do[*kmsg.FindCoordinatorResponse](c, req).ErrorCode == 0 })
		}
	}
}

// startGroups runs a broker that has a topic t of two partitions, and gives the topic's id.
func startGroups(t *testing.T, settings ...string) (s *Server, c *client, id [16]byte) {
	t.Helper()
	s = startServer(t, settings...)
	c = dial(t, s)
	c.findCoordinator()
	return s, c, c.createTopic("t", 2)
}

func joinRequest(version int16, group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID = version, group, member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 6000, 6000, "consumer"
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"t"}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	return req
}

func syncRequest(group, member string, generation int32, assignment string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, group, member, generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	if assignment != "" {
		req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte(assignment)}}
	}
	return req
}

// offsetCommit commits offset of partitions of topics, which are names, or ids.
func offsetCommit(version int16, group, member string, generation int32, offset int64, places ...any) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = version, group, member, generation
	for i := 0; i < len(places); i += 2 {
		topic := kmsg.NewOffsetCommitRequestTopic()
		switch named := places[i].(type) {
		case string:
			topic.Topic = named
		case [16]byte:
			topic.TopicID = named
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = int32(places[i+1].(int)), offset
		topic.Partitions = append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func committed(resp *kmsg.OffsetCommitResponse) string {
	var rows []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			rows = append(rows, fmt.Sprintf("%s/%d=%d", t.Topic, p.Partition, p.ErrorCode))
		}
	}
	return strings.Join(rows, " ")
}

func fetchOf(version int16, group string, topics ...any) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.RequireStable = version, group, true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, named := range topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		switch named := named.(type) {
		case string:
			t.Topic = named
		case [16]byte:
			t.TopicID = named
		}
		t.Partitions = []int32{0, 1}
		g.Topics = append(g.Topics, t)
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	req.Groups = append(req.Groups, g)
	return req
}

func fetchedOffsets(resp *kmsg.OffsetFetchResponse) string {
	var rows []string
	row := func(topic string, partition int32, code int16, offset int64) {
		rows = append(rows, fmt.Sprintf("%s/%d=%d@%d", topic, partition, code, offset))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			row(t.Topic, p.Partition, p.ErrorCode, p.Offset)
		}
	}
	for _, g := range resp.Groups {
		rows = append(rows, fmt.Sprintf("%s:%d", g.Group, g.ErrorCode))
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				row(t.Topic, p.Partition, p.ErrorCode, p.Offset)
			}
		}
	}
	return strings.Join(rows, " ")
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// A group lives from the first join to its deletion, over the wire.
func TestGroupLife(t *testing.T) {
	_, c, _ := startGroups(t)
	first := do[*kmsg.JoinGroupResponse](c, joinRequest(9, "g", ""))
	if first.ErrorCode != 79 || first.Generation != -1 || !strings.HasPrefix(first.MemberID, "test-") || first.Protocol != nil {
		t.Fatalf("first join: %+v", first)
	}
	joined := do[*kmsg.JoinGroupResponse](c, joinRequest(9, "g", first.MemberID))
	if joined.ErrorCode != 0 || joined.Generation != 1 || joined.LeaderID != first.MemberID || len(joined.Members) != 1 {
		t.Fatalf("join: %+v", joined)
	}
	me := joined.MemberID
	untyped := syncRequest("g", me, 1, "x")
	untyped.ProtocolType = nil
	if r := do[*kmsg.SyncGroupResponse](c, untyped); r.ErrorCode != 23 {
		t.Errorf("sync without a protocol type: %d", r.ErrorCode)
	}
	if r := do[*kmsg.SyncGroupResponse](c, syncRequest("g", me, 1, "mine")); r.ErrorCode != 0 || string(r.MemberAssignment) != "mine" {
		t.Fatalf("sync: %+v", r)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, "g", me, 1
	if r := do[*kmsg.HeartbeatResponse](c, beat); r.ErrorCode != 0 {
		t.Errorf("heartbeat: %d", r.ErrorCode)
	}
	describe := &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{"g", "h"}, IncludeAuthorizedOperations: true}
	d := do[*kmsg.DescribeGroupsResponse](c, describe)
	g, h := d.Groups[0], d.Groups[1]
	if g.State != "Stable" || g.AuthorizedOperations != 3400 || g.Members[0].ClientHost != "/127.0.0.1" || string(g.Members[0].MemberAssignment) != "mine" {
		t.Errorf("described: %+v", g)
	}
	if h.ErrorCode != 69 || h.State != "Dead" || *h.ErrorMessage != "Group h not found." || h.AuthorizedOperations != math.MinInt32 {
		t.Errorf("absent group described: %+v", h)
	}
	list := do[*kmsg.ListGroupsResponse](c, &kmsg.ListGroupsRequest{Version: 5, StatesFilter: []string{"stable"}})
	if len(list.Groups) != 1 || list.Groups[0].Group != "g" || list.Groups[0].GroupType != "classic" {
		t.Errorf("listed: %+v", list.Groups)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group, leave.Members = 5, "g", []kmsg.LeaveGroupRequestMember{{MemberID: me}}
	if r := do[*kmsg.LeaveGroupResponse](c, leave); r.ErrorCode != 0 || r.Members[0].ErrorCode != 0 {
		t.Errorf("leave: %+v", r)
	}
	gone := do[*kmsg.DeleteGroupsResponse](c, &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{"g", "h", "g"}})
	if len(gone.Groups) != 2 || gone.Groups[0].ErrorCode != 0 || gone.Groups[1].ErrorCode != 69 {
		t.Errorf("deleted: %+v", gone.Groups)
	}
}

// Two members of one group on connections of their own: the join of one waits for the other.
func TestJoinWaitsForTheOthers(t *testing.T) {
	s, a, _ := startGroups(t)
	b := dial(t, s)
	one := do[*kmsg.JoinGroupResponse](a, joinRequest(3, "g", ""))
	if r := do[*kmsg.SyncGroupResponse](a, syncRequest("g", one.MemberID, 1, "x")); r.ErrorCode != 0 {
		t.Fatalf("sync: %+v", r)
	}
	second := joinRequest(3, "g", "")
	id := b.send(second)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, "g", one.MemberID, 1
	waitFor(t, "the rebalance", func() bool { return do[*kmsg.HeartbeatResponse](a, beat).ErrorCode == 27 })
	again := do[*kmsg.JoinGroupResponse](a, joinRequest(3, "g", one.MemberID))
	two := b.receive(second, id).(*kmsg.JoinGroupResponse)
	if again.Generation != 2 || two.Generation != 2 || len(again.Members) != 2 || len(two.Members) != 0 {
		t.Errorf("leader %+v, follower %+v", again, two)
	}
}

// Topics and partitions that don't exist are refused by themselves, and first.
func TestOffsetsByNameAndID(t *testing.T) {
	_, c, id := startGroups(t)
	unknown := [16]byte{1}
	equal(t, "commit by name", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", "", -1, 7, "t", 0, "no", 0, "t", 5))), "no/0=3 t/5=3 t/0=0")
	equal(t, "commit by id", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(10, "g", "", -1, 8, id, 1, unknown, 0, id, 9))), "/0=100 /9=3 /1=0")
	equal(t, "commit of nothing", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", "x", 4, 8))), "")
	equal(t, "commit by a stranger", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(8, "h", "x", 4, 8, "t", 0))), "t/0=22")
	for version, want := range map[int16]string{
		1: "t/0=0@7 t/1=0@8 no/0=0@-1 no/1=0@-1",
		7: "t/0=0@7 t/1=0@8 no/0=0@-1 no/1=0@-1",
		8: "g:0 t/0=0@7 t/1=0@8 no/0=0@-1 no/1=0@-1",
	} {
		equal(t, fmt.Sprintf("fetch v%d", version), fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(version, "g", "t", "no"))), want)
	}
	equal(t, "fetch by id", fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(10, "g", unknown, id))), "g:0 /0=0@7 /1=0@8 /0=100@-1 /1=100@-1")
	equal(t, "fetch of all", fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(2, "g"))), "t/0=0@7 t/1=0@8")
	all := do[*kmsg.OffsetFetchResponse](c, fetchOf(10, "g"))
	if len(all.Groups[0].Topics) != 1 || all.Groups[0].Topics[0].TopicID != id {
		t.Errorf("fetch of all by id: %+v", all)
	}
	drop := kmsg.NewPtrOffsetDeleteRequest()
	drop.Group = "g"
	for _, name := range []string{"t", "no"} {
		topic := kmsg.NewOffsetDeleteRequestTopic()
		topic.Topic, topic.Partitions = name, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
		drop.Topics = append(drop.Topics, topic)
	}
	if r := do[*kmsg.OffsetDeleteResponse](c, drop); r.ErrorCode != 0 || r.Topics[0].Topic != "no" || r.Topics[0].Partitions[0].ErrorCode != 3 || r.Topics[1].Partitions[0].ErrorCode != 0 {
		t.Errorf("offset delete: %+v", r)
	}
	equal(t, "fetch after", fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(2, "g"))), "t/1=0@8")
	drop.Group = ""
	if r := do[*kmsg.OffsetDeleteResponse](c, drop); r.ErrorCode != 24 || len(r.Topics) != 0 {
		t.Errorf("offset delete without a group: %+v", r)
	}
}

// The offsets of a deleted topic go with it.
func TestOffsetsOfADeletedTopic(t *testing.T) {
	_, c, _ := startGroups(t)
	do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", "", -1, 7, "t", 0))
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 10000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("t")}}
	do[*kmsg.DeleteTopicsResponse](c, req)
	waitFor(t, "the offsets to go", func() bool {
		return fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(8, "g", "t"))) == "g:0 t/0=0@-1 t/1=0@-1"
	})
}

func txnOffsetCommit(version int16, p producer, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.Group, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, "g", p.tid, p.id, p.epoch
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = "t", p.topic
	topic.Partitions = []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: 0, Offset: offset, LeaderEpoch: -1}}
	req.Topics = append(req.Topics, topic)
	return req
}

// producer is a transactional producer; topic is the id of t.
type producer struct {
	tid   string
	id    int64
	epoch int16
	topic [16]byte
}

func (p *producer) end(c *client, commit bool) {
	c.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, p.tid, p.id, p.epoch, commit
	resp := do[*kmsg.EndTxnResponse](c, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("end of a transaction: %d", resp.ErrorCode)
	}
	p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
}

// Offsets in a transaction: who may commit them by version, and what is seen of them when.
func TestOffsetsInATransaction(t *testing.T) {
	_, c, id := startGroups(t)
	begin := kmsg.NewPtrInitProducerIDRequest()
	begin.Version, begin.TransactionalID, begin.TransactionTimeoutMillis, begin.ProducerID, begin.ProducerEpoch = 5, kmsg.StringPtr("tid"), 60000, -1, -1
	r := do[*kmsg.InitProducerIDResponse](c, begin)
	p := producer{"tid", r.ProducerID, r.ProducerEpoch, id}
	code := func(req *kmsg.TxnOffsetCommitRequest) int16 {
		return do[*kmsg.TxnOffsetCommitResponse](c, req).Topics[0].Partitions[0].ErrorCode
	}
	offset := func() string { return fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(8, "g", "t"))) }
	var codes []int16
	for version := range int16(5) {
		codes = append(codes, code(txnOffsetCommit(version, p, 7)))
	}
	if want := []int16{48, 48, 48, 48, 120}; !slices.Equal(codes, want) {
		t.Errorf("not in the transaction: %v, want %v", codes, want)
	}
	nameless := txnOffsetCommit(5, p, 7)
	nameless.Group = ""
	if got := code(nameless); got != 24 {
		t.Errorf("no group: %d", got)
	}
	for version := int16(5); version <= 6; version++ {
		if got := code(txnOffsetCommit(version, p, 7)); got != 0 {
			t.Errorf("v%d: %d", version, got)
		}
	}
	equal(t, "pending", offset(), "g:0 t/0=88@-1 t/1=0@-1")
	p.end(c, true)
	equal(t, "committed", offset(), "g:0 t/0=0@7 t/1=0@-1")
	if got := code(txnOffsetCommit(5, p, 70)); got != 0 {
		t.Errorf("second transaction: %d", got)
	}
	p.end(c, false)
	equal(t, "aborted", offset(), "g:0 t/0=0@7 t/1=0@-1")
	for _, wrong := range []struct {
		p    producer
		code int16
	}{{producer{"tid", p.id, p.epoch - 1, id}, 47}, {producer{"tid", p.id + 9, p.epoch, id}, 49}, {producer{"other", p.id, p.epoch, id}, 49}, {producer{"", p.id, p.epoch, id}, 42}} {
		if got := code(txnOffsetCommit(6, wrong.p, 1)); got != wrong.code {
			t.Errorf("%+v: %d, want %d", wrong.p, got, wrong.code)
		}
	}
}

// A broker that isn't the coordinator says so, and nothing is refused for good.
func TestGroupsWithoutACoordinator(t *testing.T) {
	c := dial(t, startServer(t))
	c.createTopic("t", 1)
	if r := do[*kmsg.JoinGroupResponse](c, joinRequest(9, "g", "")); r.ErrorCode != 16 || r.Generation != -1 {
		t.Errorf("join: %+v", r)
	}
	if r := do[*kmsg.JoinGroupResponse](c, joinRequest(9, "", "")); r.ErrorCode != 24 {
		t.Errorf("join without a group: %+v", r)
	}
	equal(t, "commit", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", "", -1, 7, "t", 0))), "t/0=16")
	equal(t, "fetch v8", fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(8, "g", "t"))), "g:16")
	equal(t, "fetch v1", fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(1, "g", "t"))), "t/0=16@-1 t/1=16@-1")
	if r := do[*kmsg.OffsetFetchResponse](c, fetchOf(5, "g", "t")); r.ErrorCode != 16 || len(r.Topics) != 0 {
		t.Errorf("fetch v5: %+v", r)
	}
	if r := do[*kmsg.ListGroupsResponse](c, &kmsg.ListGroupsRequest{Version: 5}); r.ErrorCode != 0 || len(r.Groups) != 0 {
		t.Errorf("list: %+v", r)
	}
	if r := do[*kmsg.DescribeGroupsResponse](c, &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{"g"}}); r.Groups[0].ErrorCode != 16 {
		t.Errorf("describe: %+v", r)
	}
}

// A client that leaves while the topic of its coordinator is made is no reason for a warning, and the next one gets the topic.
func TestLeavingWhileAnInternalTopicIsMade(t *testing.T) {
	s, lines := startLogged(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.ensureInternalTopic(gone, offsetsTopic); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the client has gone", err)
	}
	if warnings := lines.take("WARN"); len(warnings) > 0 {
		t.Errorf("logged %s", warnings)
	}
	if _, err := s.ensureInternalTopic(t.Context(), offsetsTopic); err != nil {
		t.Fatal(err)
	}
}

// Groups, members and offsets, those of open transactions too, are there after a restart; members go on as if nothing
// had been.
func TestGroupsSurviveARestart(t *testing.T) {
	cfg := testConfig(t, t.TempDir(), "group.min.session.timeout.ms=1000")
	var me string
	run(t, cfg, func(c *client) {
		c.findCoordinator()
		c.createTopic("t", 2)
		me = do[*kmsg.JoinGroupResponse](c, joinRequest(3, "g", "")).MemberID
		if r := do[*kmsg.SyncGroupResponse](c, syncRequest("g", me, 1, "mine")); r.ErrorCode != 0 {
			t.Fatalf("sync: %+v", r)
		}
		equal(t, "commit", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", me, 1, 7, "t", 0))), "t/0=0")
	})
	run(t, cfg, func(c *client) {
		waitFor(t, "the load", func() bool {
			return fetchedOffsets(do[*kmsg.OffsetFetchResponse](c, fetchOf(8, "g", "t"))) == "g:0 t/0=0@7 t/1=0@-1"
		})
		if r := do[*kmsg.SyncGroupResponse](c, syncRequest("g", me, 1, "")); r.ErrorCode != 0 || string(r.MemberAssignment) != "mine" {
			t.Errorf("sync after the restart: %+v", r)
		}
		equal(t, "commit", committed(do[*kmsg.OffsetCommitResponse](c, offsetCommit(9, "g", me, 1, 9, "t", 1))), "t/1=0")
	})
}

// run starts a broker, and stops it when f is done with it.
func run(t *testing.T, cfg *config.Broker, f func(c *client)) {
	t.Helper()
	s, err := New(Options{Config: cfg, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	f(c)
	c.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
