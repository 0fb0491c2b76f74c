package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// A request that names one thing again and again is answered as often, until the answer has taken enough: then it is
// INVALID_REQUEST, and the answer stays of a size that can be served. What is named once is told, however often another was.
func TestNamesThatRepeatDoNotMakeHugeAnswers(t *testing.T) {
	_, c, _ := startGroups(t)
	c.createTopic("wide", 200)
	for pid := range int64(30) {
		c.produce("t", 0, batchOf(t, protocol.BatchSpec{ProducerID: pid}, 1, 10))
	}
	join := joinRequest(3, "g", "")
	join.SessionTimeoutMillis = 60_000
	joined := do[*kmsg.JoinGroupResponse](c, join)
	do[*kmsg.SyncGroupResponse](c, syncRequest("g", joined.MemberID, joined.Generation, strings.Repeat("x", 500_000)))
	commit := offsetCommit(8, "offsets", "", -1, 1, "t", 0, "t", 1)
	for i := range commit.Topics {
		for j := range commit.Topics[i].Partitions {
			commit.Topics[i].Partitions[j].Metadata = kmsg.StringPtr(strings.Repeat("m", 4000))
		}
	}
	do[*kmsg.OffsetCommitResponse](c, commit)
	pid, epoch := c.initProducer("txn")
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, "txn", pid, epoch
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "wide"}}
	for i := range int32(200) {
		add.Topics[0].Partitions = append(add.Topics[0].Partitions, i)
	}
	do[*kmsg.AddPartitionsToTxnResponse](c, add)

	size := 0 // of the last answer
	ask := func(req kmsg.Request) kmsg.Response {
		c.send(req)
		_, body := c.frame()
		size = len(body)
		resp := req.ResponseKind()
		resp.SetVersion(req.GetVersion())
		if resp.IsFlexible() {
			body = body[1:]
		}
		if err := resp.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	codes := map[string]func() []int16{
		"DescribeConfigs": func() (codes []int16) {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Version = 1
			req.Resources = slices.Repeat([]kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}, 30_000)
			req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "wide"})
			for _, r := range ask(req).(*kmsg.DescribeConfigsResponse).Resources {
				codes = append(codes, r.ErrorCode)
			}
			return codes
		},
		"DescribeGroups": func() (codes []int16) {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Version, req.Groups = 5, append(slices.Repeat([]string{"g"}, 200), "offsets")
			for _, g := range ask(req).(*kmsg.DescribeGroupsResponse).Groups {
				codes = append(codes, g.ErrorCode)
			}
			return codes
		},
		"DescribeTransactions": func() (codes []int16) {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = slices.Repeat([]string{"txn"}, 50_000)
			for _, x := range ask(req).(*kmsg.DescribeTransactionsResponse).TransactionStates {
				codes = append(codes, x.ErrorCode)
			}
			return append(codes, 0)
		},
		"DescribeProducers": func() (codes []int16) {
			req := kmsg.NewPtrDescribeProducersRequest()
			req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: append(make([]int32, 50_000), 1)}}
			for _, p := range ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions {
				codes = append(codes, p.ErrorCode)
			}
			return codes
		},
		"OffsetFetch of everything": func() (codes []int16) {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version, req.Groups = 8, slices.Repeat([]kmsg.OffsetFetchRequestGroup{{Group: "offsets"}}, 20_000)
			req.Groups = append(req.Groups, kmsg.OffsetFetchRequestGroup{Group: "g"})
			for _, g := range ask(req).(*kmsg.OffsetFetchResponse).Groups {
				codes = append(codes, g.ErrorCode)
			}
			return codes
		},
		"OffsetFetch": func() (codes []int16) {
			req := kmsg.NewPtrOffsetFetchRequest()
			g := kmsg.OffsetFetchRequestGroup{Group: "offsets", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: make([]int32, 2_000)}}}
			req.Version, req.Groups = 8, slices.Repeat([]kmsg.OffsetFetchRequestGroup{g}, 20)
			for _, g := range ask(req).(*kmsg.OffsetFetchResponse).Groups {
				codes = append(codes, g.ErrorCode)
			}
			return append(codes, 0)
		},
	}
	for name, askFor := range codes {
		t.Run(name, func(t *testing.T) {
			got := askFor()
			if size > repeatsMost*5/4 {
				t.Errorf("an answer of %d bytes", size)
			}
			last := len(got) - 1
			switch refused := slices.Index(got, kerr.InvalidRequest.Code); {
			case got[0] != 0 || got[last] != 0:
				t.Errorf("what is named once: errors %d, %d", got[0], got[last])
			case refused < 2:
				t.Errorf("refused from the %d. on", refused)
			case slices.ContainsFunc(got[refused:last], func(code int16) bool { return code != kerr.InvalidRequest.Code }):
				t.Errorf("told again after a refusal: %v", slices.Compact(got))
			}
		})
	}
}
