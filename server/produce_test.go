package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// produced shows an answer, row by row.
func produced(resp *kmsg.ProduceResponse) string {
	var rows []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			row := fmt.Sprintf("%s-%d %d@%d", t.Topic, p.Partition, p.ErrorCode, p.BaseOffset)
			if p.ErrorMessage != nil {
				row += " " + *p.ErrorMessage
			}
			rows = append(rows, row)
		}
	}
	return strings.Join(rows, ", ")
}

// addPartition adds a partition to a produce request.
func addPartition(req *kmsg.ProduceRequest, topic string, partition int32, records []byte) {
	more := produceRequest(req.Version, topic, partition, req.Acks, records)
	req.Topics = append(req.Topics, more.Topics...)
}

// What is wrong with the bytes of a partition is told as Kafka tells it, and
// leaves nothing behind.
func TestProduceRefusesWhatIsNoBatch(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	b := batch(t, 1, 10)
	change := func(f func(b []byte)) []byte {
		changed := append([]byte(nil), b...)
		f(changed)
		return changed
	}
	zstd := protocol.BatchSpec{Codec: protocol.CodecZstd, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	lone := protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Transactional: true}
	for name, row := range map[string]struct {
		version int16
		records []byte
		want    string
	}{
		"null":                {9, nil, "t-0 87@-1"},
		"empty":               {9, []byte{}, "t-0 87@-1"},
		"cut short":           {9, b[:40], "t-0 87@-1"},
		"two batches":         {9, append(append([]byte(nil), b...), b...), "t-0 87@-1"},
		"trailing garbage":    {9, append(append([]byte(nil), b...), make([]byte, 30)...), "t-0 2@-1"},
		"magic 1":             {9, change(func(b []byte) { b[16] = 1 }), "t-0 87@-1"},
		"magic 5":             {9, change(func(b []byte) { b[16] = 5 }), "t-0 2@-1 Invalid magic found in record: 5"},
		"no length":           {9, change(func(b []byte) { copy(b[8:], []byte{0, 0, 0, 5}) }), "t-0 2@-1 Record size 5 is less than the minimum record overhead (14)"},
		"wrong CRC":           {9, change(func(b []byte) { b[len(b)-1] ^= 1 }), "t-0 2@-1"},
		"zstd for an old one": {6, batchOf(t, zstd, 3, 10), "t-0 76@-1"},
		"txn without id":      {9, batchOf(t, lone, 1, 10), "t-0 53@-1"},
		"too large":           {9, batch(t, 1, 1_100_000), "t-0 10@-1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			if got := produced(do[*kmsg.ProduceResponse](c, produceRequest(row.version, "t", 0, 1, row.records))); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
	half := append(append([]byte(nil), b...), b[:40]...)
	if got := produced(do[*kmsg.ProduceResponse](c, produceRequest(9, "t", 0, 1, half))); got != "t-0 0@0" {
		t.Errorf("batch with the beginning of another: %s", got)
	}
}

// Each partition has its own row, and the last word on a partition counts.
func TestProduceAnswersByPartition(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 2)
	req := produceRequest(9, "t", 0, 1, batch(t, 1, 10))
	addPartition(req, "nope", 0, batch(t, 1, 10))
	addPartition(req, "t", 7, batch(t, 1, 10))
	addPartition(req, "t", 0, batch(t, 3, 10))
	addPartition(req, "__consumer_offsets", 0, batch(t, 1, 10))
	if got, want := produced(do[*kmsg.ProduceResponse](c, req)), "t-7 3@-1, t-0 0@0, nope-0 3@-1, __consumer_offsets-0 3@-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := c.produce("t", 0, batch(t, 1, 10)); got != 3 {
		t.Errorf("the next offset is %d", got)
	}
	req.Acks = 2
	if got, want := produced(do[*kmsg.ProduceResponse](c, req)), "t-7 3@-1, t-0 21@-1, nope-0 3@-1, __consumer_offsets-0 3@-1"; got != want {
		t.Errorf("acks=2: got %s, want %s", got, want)
	}
	// A request with many partitions takes the way of large ones.
	large := produceRequest(9, "t", 0, 1, batch(t, 1, 10))
	for range 50 {
		addPartition(large, "t", 1, batch(t, 1, 10))
	}
	addPartition(large, "t", 0, batch(t, 2, 10))
	if got, want := produced(do[*kmsg.ProduceResponse](c, large)), "t-1 0@0, t-0 0@4"; got != want {
		t.Errorf("large: got %s, want %s", got, want)
	}
}

// Nobody answers acks=0; an error can only be shown by closing the connection.
func TestAcksZeroIsSilent(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	c.send(produceRequest(9, "t", 0, 0, batch(t, 2, 10)))
	if got := c.produce("t", 0, batch(t, 1, 10)); got != 2 {
		t.Errorf("base offset %d", got)
	}
	c.send(produceRequest(9, "nope", 0, 0, batch(t, 2, 10)))
	c.expectClosed()
}

// A produce by topic id goes to the topic that has it.
func TestProduceByTopicID(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	id := c.createTopic("t", 1)
	req := produceRequest(13, "", 0, -1, batch(t, 1, 10))
	req.Topics[0].TopicID = id
	if p := do[*kmsg.ProduceResponse](c, req).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("error %d", p.ErrorCode)
	}
	req = produceRequest(13, "", 0, -1, batch(t, 1, 10))
	req.Topics[0].TopicID = [16]byte{1}
	if p := do[*kmsg.ProduceResponse](c, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("unknown id: error %d", p.ErrorCode)
	}
}

// initProducer gets a producer id for a transactional id.
func (c *client) initProducer(transactionalID string) (id int64, epoch int16) {
	c.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKeys = 4, 1, []string{transactionalID}
	if code := do[*kmsg.FindCoordinatorResponse](c, find).Coordinators[0].ErrorCode; code != 0 {
		c.t.Fatalf("find coordinator: error %d", code)
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, &transactionalID, 60_000, -1, -1
	resp := do[*kmsg.InitProducerIDResponse](c, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("init producer id: error %d", resp.ErrorCode)
	}
	return resp.ProducerID, resp.ProducerEpoch
}

func txnProduce(version int16, tid, topic string, partition int32, b protocol.Batch) *kmsg.ProduceRequest {
	req := produceRequest(version, topic, partition, -1, b)
	req.TransactionID = &tid
	return req
}

// A transactional produce is verified or adds its partition, by its version, and
// a batch outside of any transaction is refused in the words of that version.
func TestTransactionalProduceBelongsToItsTransaction(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 3)
	pid, epoch := c.initProducer("tid")
	txn := func(seq int32) protocol.BatchSpec {
		return protocol.BatchSpec{ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, Transactional: true}
	}
	for version, want := range map[int16]string{
		10: "t-0 48@-1 Partition was not added to the transaction",
		11: "t-0 120@-1",
	} {
		if got := produced(do[*kmsg.ProduceResponse](c, txnProduce(version, "tid", "t", 0, batchOf(t, txn(0), 1, 10)))); got != want {
			t.Errorf("v%d: got %s, want %s", version, got, want)
		}
	}
	if got, want := produced(do[*kmsg.ProduceResponse](c, txnProduce(12, "tid", "t", 0, batchOf(t, txn(0), 1, 10)))), "t-0 0@0"; got != want {
		t.Errorf("v12: got %s, want %s", got, want)
	}
	if got, want := produced(do[*kmsg.ProduceResponse](c, txnProduce(11, "tid", "t", 0, batchOf(t, txn(1), 1, 10)))), "t-0 0@1"; got != want {
		t.Errorf("v11 within the transaction: got %s, want %s", got, want)
	}
	two := txnProduce(11, "tid", "t", 0, batchOf(t, txn(2), 1, 10))
	other := txn(0)
	other.ProducerID++
	addPartition(two, "t", 1, batchOf(t, other, 1, 10))
	want := "t-0 49@-1 Transactional records contained more than one producer ID, t-1 49@-1 Transactional records contained more than one producer ID"
	if got := produced(do[*kmsg.ProduceResponse](c, two)); got != want {
		t.Errorf("two producers: got %s", got)
	}

	fetch := fetchRequest(12, "t", 0, 0)
	fetch.IsolationLevel = 1
	p := do[*kmsg.FetchResponse](c, fetch).Topics[0].Partitions[0]
	if p.LastStableOffset != 0 || p.HighWatermark != 2 || len(p.RecordBatches) != 0 {
		t.Errorf("open transaction: last stable offset %d, high watermark %d, %d bytes", p.LastStableOffset, p.HighWatermark, len(p.RecordBatches))
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch = 4, "tid", pid, epoch
	if code := do[*kmsg.EndTxnResponse](c, end).ErrorCode; code != 0 {
		t.Fatalf("end: error %d", code)
	}
	fetch.MaxWaitMillis = 5000
	p = do[*kmsg.FetchResponse](c, fetch).Topics[0].Partitions[0]
	if p.LastStableOffset != 3 || len(p.AbortedTransactions) != 1 || p.AbortedTransactions[0].FirstOffset != 0 {
		t.Errorf("aborted transaction: last stable offset %d, aborted %v", p.LastStableOffset, p.AbortedTransactions)
	}
}
