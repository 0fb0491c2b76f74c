package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// listOffsets asks for one partition at several timestamps, in one request each.
func (c *client) listOffsets(version int16, topic string, timestamps ...int64) string {
	c.t.Helper()
	var found []string
	for _, ts := range timestamps {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID = version, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = ts
		req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}})
		got := do[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions[0]
		found = append(found, fmt.Sprintf("%d:%d@%d", got.ErrorCode, got.Offset, got.Timestamp))
	}
	return strings.Join(found, " ")
}

func TestListOffsetsFindsByTime(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	for _, ts := range []int64{100, 200, 150} {
		c.produce("t", 0, batchOf(t, protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: ts}, 1, 10))
	}
	for _, row := range []struct {
		version int16
		ts      []int64
		want    string
	}{
		{7, []int64{100, 150, 200, 201}, "0:0@100 0:1@200 0:1@200 0:-1@-1"},
		{11, []int64{-1, -2, -3, -4, -5, -6, -7}, "0:3@-1 0:0@-1 0:1@200 0:0@-1 0:-1@-1 0:-1@-1 35:-1@-1"},
		{10, []int64{-5, -6}, "0:-1@-1 35:-1@-1"},
		{8, []int64{-4, -5}, "0:0@-1 35:-1@-1"},
		{6, []int64{-2, -3}, "0:0@-1 35:-1@-1"},
		{1, []int64{-1, -2}, "0:3@-1 0:0@-1"},
	} {
		if got := c.listOffsets(row.version, "t", row.ts...); got != row.want {
			t.Errorf("v%d %v: got %s, want %s", row.version, row.ts, got, row.want)
		}
	}
}

// A partition that is named twice is refused once; a wrong isolation level is an
// answer for each row.
func TestListOffsetsRefusesDoubles(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 2)
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "t"
	for _, index := range []int32{0, 1, 0, 0} {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = index, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	show := func() string {
		var rows []string
		for _, p := range do[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions {
			rows = append(rows, fmt.Sprintf("%d:%d", p.Partition, p.ErrorCode))
		}
		return strings.Join(rows, " ")
	}
	if got := show(); got != "0:42 1:0" {
		t.Errorf("got %s", got)
	}
	req.IsolationLevel = 4
	if got := show(); got != "0:-1 1:-1 0:-1 0:-1" {
		t.Errorf("isolation level 4: got %s", got)
	}
}

func TestDeleteRecordsRaisesTheStart(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 2)
	c.createTopic("compacted", 1, "cleanup.policy=compact")
	c.produce("t", 0, batch(t, 10, 10))
	ask := func(rows ...kmsg.DeleteRecordsRequestTopic) string {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version, req.TimeoutMillis, req.Topics = 2, 5000, rows
		var got []string
		for _, topic := range do[*kmsg.DeleteRecordsResponse](c, req).Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s-%d %d:%d", topic.Topic, p.Partition, p.ErrorCode, p.LowWatermark))
			}
		}
		return strings.Join(got, ", ")
	}
	row := func(topic string, index int32, offset int64) kmsg.DeleteRecordsRequestTopic {
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = index, offset
		return kmsg.DeleteRecordsRequestTopic{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{p}}
	}
	for _, step := range []struct {
		rows []kmsg.DeleteRecordsRequestTopic
		want string
	}{
		{[]kmsg.DeleteRecordsRequestTopic{row("t", 0, 4)}, "t-0 0:4"},
		{[]kmsg.DeleteRecordsRequestTopic{row("t", 0, 2)}, "t-0 0:4"},
		{[]kmsg.DeleteRecordsRequestTopic{row("t", 0, 5), row("t", 0, 6)}, "t-0 0:6"},
		{[]kmsg.DeleteRecordsRequestTopic{row("t", 0, 11), row("t", 1, -2)}, "t-0 1:-1, t-1 1:-1"},
		{[]kmsg.DeleteRecordsRequestTopic{row("nope", 0, 1), row("t", 5, 1), row("compacted", 0, 0)}, "nope-0 3:-1, t-5 3:-1, compacted-0 44:-1"},
		{[]kmsg.DeleteRecordsRequestTopic{row("t", 0, -1)}, "t-0 0:10"},
	} {
		if got := ask(step.rows...); got != step.want {
			t.Errorf("got %s, want %s", got, step.want)
		}
	}
	if got := c.listOffsets(7, "t", -2); got != "0:10@-1" {
		t.Errorf("earliest offset: %s", got)
	}
	if got := fetched(do[*kmsg.FetchResponse](c, fetchRequest(11, "t", 9, 0))); got != "t-0 1:0" {
		t.Errorf("fetch below the start: %s", got)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	c.produce("t", 0, batch(t, 5, 10))
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
	topic.Topic = "t"
	for _, row := range [][3]int32{{0, -1, 0}, {0, -1, 7}, {0, -1, -1}, {0, 9, 0}, {3, -1, 0}} {
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = row[0], row[1], row[2]
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	var got []string
	for _, p := range do[*kmsg.OffsetForLeaderEpochResponse](c, req).Topics[0].Partitions {
		got = append(got, fmt.Sprintf("%d:%d@%d", p.ErrorCode, p.EndOffset, p.LeaderEpoch))
	}
	if want := "0:5@0 0:-1@-1 0:-1@-1 75:-1@-1 3:-1@-1"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestDescribeProducers(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	c.produce("t", 0, batchOf(t, protocol.BatchSpec{ProducerID: 12, ProducerEpoch: 3, BaseSequence: 7, BaseTimestamp: 1234}, 5, 10))
	req := kmsg.NewPtrDescribeProducersRequest()
	for _, name := range []string{"t", "nope", "a b"} {
		req.Topics = append(req.Topics, kmsg.DescribeProducersRequestTopic{Topic: name, Partitions: []int32{0, 9}})
	}
	resp := do[*kmsg.DescribeProducersResponse](c, req)
	p := resp.Topics[0].Partitions[0]
	if len(p.ActiveProducers) != 1 {
		t.Fatalf("got %+v", p)
	}
	a := p.ActiveProducers[0]
	if got, want := fmt.Sprint(a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset), "12 3 11 1234 -1 -1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, want := range []int16{kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Code, kerr.InvalidTopicException.Code} {
		p := resp.Topics[i].Partitions[1]
		if p.ErrorCode != want || (p.ErrorMessage != nil) != (i > 0) {
			t.Errorf("row %d: error %d, message %v", i, p.ErrorCode, p.ErrorMessage)
		}
	}
}
