package golden

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/tests/brokertest"
)

// checkCoordinators looks at what the coordinators made of the records of the set: groups with their offsets, transactional ids with their
// producers, and producer ids that nobody gets again.
func checkCoordinators(t *testing.T, b *brokertest.Broker) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	adm := kadm.NewClient(cl)
	for group, want := range map[string]map[int32]string{
		"simple-group":   {0: "1"},
		"classic-group":  {0: "2 second", 1: "2 second"},
		"consumer-group": {0: "1 by epoch", 1: "1 by epoch"},
	} {
		offsets, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			t.Errorf("%s: %v", group, err)
			continue
		}
		got := map[int32]string{}
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.Topic == "input" {
				got[o.Partition] = showOffset(o)
			}
		})
		if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("offsets of %s: %v, want %v", group, got, want)
		}
	}
	txns, err := adm.DescribeTransactions(ctx, "tx-empty", "tx-commit", "tx-abort", "tx-fenced", "tx-first-protocol")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct {
		producer int64
		epoch    int16
		state    string
	}{
		"tx-empty": {1000, 0, "Empty"}, "tx-commit": {1001, 1, "CompleteCommit"}, "tx-abort": {1002, 1, "CompleteAbort"},
		"tx-fenced": {1004, 2, "Empty"}, "tx-first-protocol": {1005, 0, "CompleteCommit"},
	} {
		if got := txns[id]; got.ProducerID != want.producer || got.ProducerEpoch != want.epoch || got.State != want.state {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	for range 3 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 60_000, -1, -1
		resp, err := req.RequestWith(ctx, cl)
		if err != nil || resp.ErrorCode != 0 || resp.ProducerID <= 1005 {
			t.Errorf("a new producer got %+v, %v: ids up to 1005 are in use", resp, err)
		}
	}
}

func showOffset(o kadm.OffsetResponse) string {
	s := ""
	if o.Metadata != "" {
		s = " " + o.Metadata
	}
	return string(rune('0'+o.At)) + s
}
