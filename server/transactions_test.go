package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
	"oncelog/txncoordinator"
)

// txnClient is a client that speaks about transactional ids; answers are drawn as text.
type txnClient struct{ *client }

func startTxns(t *testing.T, settings ...string) (*Server, txnClient) {
	t.Helper()
	s := startServer(t, settings...)
	c := txnClient{dial(t, s)}
	c.findCoordinator()
	c.createTopic("t", 3)
	return s, c
}

func (c txnClient) init(version int16, id string, expected txncoordinator.Producer) (txncoordinator.Producer, int16) {
	c.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, &id, 60000
	req.ProducerID, req.ProducerEpoch = expected.ID, expected.Epoch
	resp := do[*kmsg.InitProducerIDResponse](c.client, req)
	return txncoordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}, resp.ErrorCode
}

func (c txnClient) mustInit(id string) txncoordinator.Producer {
	c.t.Helper()
	p, code := c.init(5, id, txncoordinator.NoProducer)
	if code != 0 {
		c.t.Fatalf("InitProducerId of %s: %d", id, code)
	}
	return p
}

func endRequest(version int16, id string, p txncoordinator.Producer, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, id, p.ID, p.Epoch, commit
	return req
}

// end gives what EndTxn answers, and the next producer.
func (c txnClient) end(version int16, id string, p txncoordinator.Producer, commit bool) (int16, txncoordinator.Producer) {
	c.t.Helper()
	resp := do[*kmsg.EndTxnResponse](c.client, endRequest(version, id, p, commit))
	return resp.ErrorCode, txncoordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
}

// add gives the codes of the partitions, which are topic-partition, sorted.
func (c txnClient) add(version int16, id string, p txncoordinator.Producer, partitions ...string) string {
	c.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, id, p.ID, p.Epoch
	many := kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: id, ProducerID: p.ID, ProducerEpoch: p.Epoch}
	for _, name := range partitions {
		i := strings.LastIndexByte(name, '-')
		index := int32(name[i+1] - '0')
		req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: name[:i], Partitions: []int32{index}})
		many.Topics = append(many.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: name[:i], Partitions: []int32{index}})
	}
	if version >= 4 {
		req.Transactions = append(req.Transactions, many)
	}
	resp := do[*kmsg.AddPartitionsToTxnResponse](c.client, req)
	var rows []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			rows = append(rows, fmt.Sprintf("%s-%d=%d", t.Topic, p.Partition, p.ErrorCode))
		}
	}
	for _, txn := range resp.Transactions {
		for _, t := range txn.Topics {
			for _, p := range t.Partitions {
				rows = append(rows, fmt.Sprintf("%s-%d=%d", t.Topic, p.Partition, p.ErrorCode))
			}
		}
	}
	slices.Sort(rows)
	return strings.Join(rows, " ")
}

func (c txnClient) txnProduce(version int16, id string, p txncoordinator.Producer, partition, sequence int32) *kmsg.ProduceRequest {
	c.t.Helper()
	b := batchOf(c.t, protocol.BatchSpec{ProducerID: p.ID, ProducerEpoch: p.Epoch, BaseSequence: sequence, Transactional: true}, 1, 10)
	req := produceRequest(version, "t", partition, -1, b)
	req.TransactionID = &id
	return req
}

// write produces one record, and draws the answer.
func (c txnClient) write(version int16, id string, p txncoordinator.Producer, partition, sequence int32) string {
	c.t.Helper()
	return produced(do[*kmsg.ProduceResponse](c.client, c.txnProduce(version, id, p, partition, sequence)))
}

func (c txnClient) describe(id string) string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	row := do[*kmsg.DescribeTransactionsResponse](c.client, req).TransactionStates[0]
	text := fmt.Sprintf("%d %s %d/%d", row.ErrorCode, row.State, row.ProducerID, row.ProducerEpoch)
	for _, t := range row.Topics {
		text += fmt.Sprintf(" %s%v", t.Topic, t.Partitions)
	}
	return text
}

// TestFirstFindCoordinator creates the topic, and answers once the coordinator takes requests.
func TestFirstFindCoordinator(t *testing.T) {
	s := startServer(t)
	c := txnClient{dial(t, s)}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, 1, []string{"a", "", "é😀", "a"}
	resp := do[*kmsg.FindCoordinatorResponse](c.client, req)
	host, port := splitAddr(s.Addrs()["PLAINTEXT"])
	for i, row := range resp.Coordinators {
		if row.Key != req.CoordinatorKeys[i] || row.ErrorCode != 0 || row.NodeID != 1 || row.Host != host || row.Port != port || *row.ErrorMessage != "" {
			t.Errorf("%+v", row)
		}
	}
	if p, code := c.init(5, "a", txncoordinator.NoProducer); code != 0 || p.Epoch != 0 {
		t.Errorf("InitProducerId: %d %v", code, p)
	}
	if got := len(s.image().Topic("__transaction_state").Partitions); got != 2 {
		t.Errorf("%d partitions", got)
	}
}

// TestFindCoordinatorWords: messages by version, unknown types, share keys.
func TestFindCoordinatorWords(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.findCoordinator()
	const malformed = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."
	for _, row := range []struct {
		version int16
		kind    int8
		key     string
		code    int16
		message string
	}{
		{1, 0, "g", 0, "NONE"}, {3, 1, "x", 0, "NONE"}, {4, 0, "", 0, ""},
		{1, 2, "g", 42, malformed}, {3, 7, "g", 42, malformed}, {4, 7, "g", 42, malformed}, {6, -1, "g", 42, malformed},
		{5, 2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0", 42, ""}, {6, 2, "g", 42, ""}, {6, 2, "g:x:0", 42, ""}, {6, 2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0", 15, ""},
	} {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = row.version, row.kind, row.key, []string{row.key}
		resp := do[*kmsg.FindCoordinatorResponse](c, req)
		got := kmsg.FindCoordinatorResponseCoordinator{NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port, ErrorCode: resp.ErrorCode, ErrorMessage: resp.ErrorMessage}
		if row.version >= 4 {
			got = resp.Coordinators[0]
		}
		if got.ErrorCode != row.code || *got.ErrorMessage != row.message || (got.NodeID == -1) != (row.code != 0) || (got.Port == -1) != (row.code != 0) {
			t.Errorf("v%d type %d %q: %+v %q", row.version, row.kind, row.key, got, *got.ErrorMessage)
		}
	}
}

// TestTransactionsOfBothProtocols: each request as its version says, whatever the client did before.
func TestTransactionsOfBothProtocols(t *testing.T) {
	_, c := startTxns(t)
	p := c.mustInit("a")
	for version, want := range map[int16]string{
		9: "t-0 48@-1 Partition was not added to the transaction", 10: "t-0 48@-1 Partition was not added to the transaction",
		11: "t-0 120@-1",
	} {
		if got := c.write(version, "a", p, 0, 0); got != want {
			t.Errorf("v%d: %s", version, got)
		}
	}
	if got := c.write(12, "a", p, 0, 0); got != "t-0 0@0" {
		t.Error(got)
	}
	if got := c.add(3, "a", p, "t-1"); got != "t-1=0" {
		t.Error(got)
	}
	if got := c.write(9, "a", p, 1, 0); got != "t-1 0@0" {
		t.Error(got)
	}
	if got, want := c.describe("a"), fmt.Sprintf("0 Ongoing %d/0 t[0 1]", p.ID); got != want {
		t.Error(got)
	}
	if code, _ := c.end(3, "a", p, true); code != 0 {
		t.Error(code)
	}
	if got := c.write(12, "a", p, 0, 1); got != "t-0 0@2" {
		t.Error(got)
	}
	code, next := c.end(5, "a", p, false)
	if code != 0 || next.Epoch != 1 {
		t.Error(code, next)
	}
	if got := c.write(12, "a", p, 0, 2); got != "t-0 47@-1" {
		t.Error(got)
	}
	if got, want := c.describe("a"), fmt.Sprintf("0 CompleteAbort %d/1", p.ID); got != want {
		t.Error(got)
	}
}

// TestFencedCodes: PRODUCER_FENCED for the versions that know it, INVALID_PRODUCER_EPOCH for the others.
func TestFencedCodes(t *testing.T) {
	_, c := startTxns(t)
	old := c.mustInit("a")
	c.mustInit("a")
	c.mustInit("a")
	for _, row := range []struct {
		name    string
		version int16
		want    int16
		ask     func(version int16) int16
	}{
		{"InitProducerId", 3, 47, func(v int16) int16 { _, code := c.init(v, "a", old); return code }},
		{"InitProducerId", 4, 90, func(v int16) int16 { _, code := c.init(v, "a", old); return code }},
		{"EndTxn", 1, 47, func(v int16) int16 { code, _ := c.end(v, "a", old, true); return code }},
		{"EndTxn", 2, 90, func(v int16) int16 { code, _ := c.end(v, "a", old, true); return code }},
		{"EndTxn", 5, 90, func(v int16) int16 { code, _ := c.end(v, "a", old, true); return code }},
		{"AddOffsetsToTxn", 1, 47, c.addOffsets(old)},
		{"AddOffsetsToTxn", 2, 90, c.addOffsets(old)},
	} {
		if got := row.ask(row.version); got != row.want {
			t.Errorf("%s v%d: %d", row.name, row.version, got)
		}
	}
	for version, want := range map[int16]string{1: "t-0=47", 2: "t-0=90", 5: "t-0=90"} {
		if got := c.add(version, "a", old, "t-0"); got != want {
			t.Errorf("AddPartitionsToTxn v%d: %s", version, got)
		}
	}
	for _, version := range []int16{9, 11, 12} {
		if got := c.write(version, "a", old, 0, 0); got != "t-0 47@-1" {
			t.Errorf("Produce v%d: %s", version, got)
		}
	}
}

func (c txnClient) addOffsets(p txncoordinator.Producer) func(version int16) int16 {
	return func(version int16) int16 {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = version, "a", p.ID, p.Epoch, "g"
		return do[*kmsg.AddOffsetsToTxnResponse](c.client, req).ErrorCode
	}
}

// TestAddIsAllOrNothing: one partition that can't be added keeps out the others.
func TestAddIsAllOrNothing(t *testing.T) {
	_, c := startTxns(t)
	p := c.mustInit("a")
	for _, row := range []struct {
		version    int16
		partitions []string
		want       string
	}{
		{3, []string{"t-0", "t-7"}, "t-0=55 t-7=3"},
		{3, []string{"t-0", "nope-0"}, "nope-0=3 t-0=55"},
		{3, []string{"t-0", "__consumer_offsets-0"}, "__consumer_offsets-0=29 t-0=55"},
		{5, []string{"t-0", "t-7"}, "t-0=55 t-7=3"},
	} {
		if got := c.add(row.version, "a", p, row.partitions...); got != row.want {
			t.Errorf("v%d %v: %s", row.version, row.partitions, got)
		}
	}
	if got, want := c.describe("a"), fmt.Sprintf("0 Empty %d/0", p.ID); got != want {
		t.Error(got)
	}
	if got := c.add(5, "a", p, "t-0", "__consumer_offsets-0"); got != "__consumer_offsets-0=0 t-0=0" {
		t.Error(got)
	}
}

// TestBackToBackTransactions: a client that sends the next transaction's first record right behind EndTxn, without waiting for
// its answer, never meets CONCURRENT_TRANSACTIONS.
func TestBackToBackTransactions(t *testing.T) {
	_, c := startTxns(t)
	p := c.mustInit("a")
	for i := range 300 {
		write, end := c.txnProduce(12, "a", p, int32(i%3), 0), endRequest(5, "a", p, i%4 != 0)
		first, second := c.send(write), c.send(end)
		if resp := c.receive(write, first).(*kmsg.ProduceResponse); resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%d: %s", i, produced(resp))
		}
		if resp := c.receive(end, second).(*kmsg.EndTxnResponse); resp.ErrorCode != 0 || resp.ProducerEpoch != p.Epoch+1 {
			t.Fatalf("%d: %+v", i, resp)
		}
		p.Epoch++
	}
}

// TestStuckMarker: a partition that can't take its marker, as it has no leader for a moment, is waited for; the outcome
// stands meanwhile, answers come in time, and nothing is given up.
func TestStuckMarker(t *testing.T) {
	s, c := startTxns(t)
	p := c.mustInit("a")
	c.write(12, "a", p, 0, 0)
	c.write(12, "a", p, 1, 0)
	part := s.replicas.Get("t", 1)
	epoch := s.image().Topic("t").Partitions[1].LeaderEpoch
	part.Resign(epoch + 1)
	start := time.Now()
	if code, next := c.end(5, "a", p, true); code != 0 || next.Epoch != 1 {
		t.Error(code, next)
	}
	if took := time.Since(start); took < completionWait || took > 10*completionWait {
		t.Errorf("EndTxn took %v", took)
	}
	if got, want := c.describe("a"), fmt.Sprintf("0 PrepareCommit %d/1 t[1]", p.ID); got != want {
		t.Error(got)
	}
	if code, _ := c.end(5, "a", p, true); code != 51 {
		t.Error(code)
	}
	p.Epoch++
	start = time.Now()
	if got := c.write(12, "a", p, 0, 0); got != "t-0 51@-1" {
		t.Error(got)
	}
	if took := time.Since(start); took < 100*time.Millisecond || took > time.Second {
		t.Errorf("Produce took %v", took)
	}
	if got := c.write(11, "a", p, 0, 0); got != "t-0 19@-1 Unable to verify the partition has been added to the transaction. Underlying error: CONCURRENT_TRANSACTIONS" {
		t.Error(got)
	}
	if err := part.Lead(epoch+2, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the completion", func() bool { return strings.Contains(c.describe("a"), "CompleteCommit") })
	if o := part.Offsets(); o.LSO != 2 || o.End != 2 {
		t.Errorf("%+v", o)
	}
}

// TestTransactionTimesOut, and its producer is fenced.
func TestTransactionTimesOut(t *testing.T) {
	_, c := startTxns(t, "transaction.abort.timed.out.transaction.cleanup.interval.ms=20")
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, kmsg.StringPtr("a"), 50
	resp := do[*kmsg.InitProducerIDResponse](c.client, req)
	p := txncoordinator.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
	if got := c.write(12, "a", p, 0, 0); got != "t-0 0@0" {
		t.Fatal(got)
	}
	waitFor(t, "the abort", func() bool { return strings.Contains(c.describe("a"), "CompleteAbort") })
	if got := c.write(12, "a", p, 0, 1); got != "t-0 47@-1" {
		t.Error(got)
	}
	if got, code := c.init(5, "a", p); code != 0 || got.Epoch != p.Epoch+1 {
		t.Error(got, code)
	}
}

// Markers that wait for the disk are answered, and written once.
func TestMarkersWaitForTheDisk(t *testing.T) {
	s, c := startTxns(t, "log.flush.interval.messages=1")
	p := c.mustInit("a")
	for sequence := range int32(5) {
		for partition := range int32(3) {
			c.write(12, "a", p, partition, 0)
		}
		code, next := c.end(5, "a", p, sequence%2 == 0)
		if code != 0 {
			t.Fatal(code)
		}
		p = next
	}
	waitFor(t, "the completion", func() bool { return strings.Contains(c.describe("a"), "CompleteCommit") })
	for partition := range int32(3) {
		if end := s.replicas.Get("t", partition).Offsets().End; end != 10 {
			t.Errorf("partition %d ends at %d, want 5 records and 5 markers", partition, end)
		}
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: p.ID, ProducerEpoch: p.Epoch, Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{
		{Topic: "t", Partitions: []int32{0, 1}}, {Topic: "__consumer_offsets", Partitions: []int32{0}},
	}}}
	for _, topic := range do[*kmsg.WriteTxnMarkersResponse](c.client, req).Markers[0].Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				t.Errorf("%s-%d: %d", topic.Topic, p.Partition, p.ErrorCode)
			}
		}
	}
}

// TestWriteTxnMarkersCodes: per partition, one row per producer, coordinated partitions through their coordinators.
func TestWriteTxnMarkersCodes(t *testing.T) {
	s, c := startTxns(t)
	p := c.mustInit("a")
	s.replicas.Get("t", 2).Resign(s.image().Topic("t").Partitions[2].LeaderEpoch + 1)
	ask := func(version int16, markers ...kmsg.WriteTxnMarkersRequestMarker) string {
		t.Helper()
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version, req.Markers = version, markers
		var rows []string
		for _, m := range do[*kmsg.WriteTxnMarkersResponse](c.client, req).Markers {
			for _, topic := range m.Topics {
				for _, p := range topic.Partitions {
					rows = append(rows, fmt.Sprintf("%s-%d=%d", topic.Topic, p.Partition, p.ErrorCode))
				}
			}
			rows = append(rows, ".")
		}
		return strings.Join(rows, " ")
	}
	marker := func(p txncoordinator.Producer, coordinatorEpoch int32, version int8, topic string, partitions ...int32) kmsg.WriteTxnMarkersRequestMarker {
		return kmsg.WriteTxnMarkersRequestMarker{
			ProducerID: p.ID, ProducerEpoch: p.Epoch, CoordinatorEpoch: coordinatorEpoch, TransactionVersion: version,
			Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: partitions}},
		}
	}
	raised := txncoordinator.Producer{ID: p.ID, Epoch: 5}
	for _, row := range []struct{ got, want string }{
		{ask(1), ""},
		{ask(1, marker(p, 0, 0, "t")), ""},
		{ask(1, marker(p, 0, 0, "t", 0, 2, 9), marker(p, 0, 0, "nope", 0)), "t-0=0 t-2=6 t-9=3 nope-0=3 ."},
		{ask(2, marker(raised, 3, 0, "t", 1)), "t-1=0 ."},
		{ask(2, marker(p, 3, 0, "t", 1)), "t-1=47 ."},
		{ask(2, marker(raised, 2, 0, "t", 1)), "t-1=52 ."},
		{ask(2, marker(raised, 3, 2, "t", 1)), "t-1=0 ."},
		{ask(2, marker(raised, 3, -1, "t", 1)), "t-1=-1 ."},
		{ask(1, marker(txncoordinator.NoProducer, 3, 0, "t", 1)), "t-1=-1 ."},
		{ask(1, marker(raised, 3, 0, "__consumer_offsets", 0, 1, 9)), "__consumer_offsets-0=0 __consumer_offsets-1=0 __consumer_offsets-9=3 ."},
		{ask(1, marker(p, 3, 0, "__consumer_offsets", 0)), "__consumer_offsets-0=47 ."},
		{ask(1, marker(raised, 2, 0, "__consumer_offsets", 0)), "__consumer_offsets-0=52 ."},
		{ask(1, marker(raised, 3, 0, "__transaction_state", 0)), "__transaction_state-0=0 ."},
	} {
		if row.got != row.want {
			t.Errorf("%s, want %s", row.got, row.want)
		}
	}
}

// TestListTransactions over the wire: filters by version, the whole id must match, unknown states are told.
func TestListTransactions(t *testing.T) {
	_, c := startTxns(t)
	for _, id := range []string{"ab", "abc", "x"} {
		c.mustInit(id)
	}
	list := func(req kmsg.ListTransactionsRequest) string {
		t.Helper()
		resp := do[*kmsg.ListTransactionsResponse](c.client, &req)
		var rows []string
		for _, row := range resp.TransactionStates {
			rows = append(rows, row.TransactionalID)
		}
		slices.Sort(rows)
		return fmt.Sprint(resp.ErrorCode, resp.UnknownStateFilters, rows)
	}
	for _, row := range []struct {
		req  kmsg.ListTransactionsRequest
		want string
	}{
		{kmsg.ListTransactionsRequest{}, "0 [] [ab abc x]"},
		{kmsg.ListTransactionsRequest{StateFilters: []string{"Empty", "empty"}}, "0 [empty] [ab abc x]"},
		{kmsg.ListTransactionsRequest{StateFilters: []string{"empty"}}, "0 [empty] []"},
		{kmsg.ListTransactionsRequest{StateFilters: []string{"Dead"}}, "0 [] []"},
		{kmsg.ListTransactionsRequest{ProducerIDFilters: []int64{77}}, "0 [] []"},
		{kmsg.ListTransactionsRequest{Version: 1, DurationFilterMillis: 1 << 40}, "0 [] [ab abc x]"},
		{kmsg.ListTransactionsRequest{Version: 2, DurationFilterMillis: -1, TransactionalIDPattern: kmsg.StringPtr("ab|x|b")}, "0 [] [ab x]"},
		{kmsg.ListTransactionsRequest{Version: 2, DurationFilterMillis: -1, TransactionalIDPattern: kmsg.StringPtr("")}, "0 [] [ab abc x]"},
		{kmsg.ListTransactionsRequest{Version: 2, DurationFilterMillis: -1, TransactionalIDPattern: kmsg.StringPtr("a)(b")}, "128 [] []"},
	} {
		if got := list(row.req); got != row.want {
			t.Errorf("%+v: %s, want %s", row.req, got, row.want)
		}
	}
}

// TestTransactionSurvivesRestart: an open transaction goes on, a decided one is completed.
func TestTransactionSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	run := func(f func(s *Server, c txnClient)) {
		s, err := New(Options{Config: testConfig(t, dir), Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := txnClient{dial(t, s)}
		c.findCoordinator()
		f(s, c)
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var open, decided txncoordinator.Producer
	run(func(s *Server, c txnClient) {
		c.createTopic("t", 2)
		open, decided = c.mustInit("open"), c.mustInit("decided")
		c.write(12, "open", open, 0, 0)
		c.write(12, "decided", decided, 1, 0)
		s.replicas.Get("t", 1).Resign(s.image().Topic("t").Partitions[1].LeaderEpoch + 1)
		if code, _ := c.end(5, "decided", decided, true); code != 0 {
			t.Error(code)
		}
	})
	run(func(s *Server, c txnClient) {
		waitFor(t, "the completion", func() bool { return strings.Contains(c.describe("decided"), "CompleteCommit") })
		if code, next := c.end(5, "decided", decided, true); code != 0 || next.Epoch != decided.Epoch+1 {
			t.Error("repeated EndTxn", code, next)
		}
		if got := c.write(12, "open", open, 0, 1); got != "t-0 0@1" {
			t.Error(got)
		}
		if code, _ := c.end(5, "open", open, true); code != 0 {
			t.Error(code)
		}
		if o := s.replicas.Get("t", 0).Offsets(); o.LSO != 3 {
			t.Errorf("%+v", o)
		}
	})
}
