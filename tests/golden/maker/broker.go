package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// broker is the one broker that a set is made with.
type broker struct {
	wire   *protocol.Client // for requests of a certain version
	client *kgo.Client
	admin  *kadm.Client
}

func dial(address string) *broker {
	conn, err := net.Dial("tcp", address)
	must(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	must(err)
	return &broker{protocol.NewClient(conn, "golden"), client, kadm.NewClient(client)}
}

func (b *broker) close() {
	b.client.Close()
	must(b.wire.Close())
}

const patience = time.Minute

// ask sends a request to the broker as it is.
func ask[R kmsg.Response](b *broker, version int16, req kmsg.Request) R {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req.SetVersion(version)
	resp, err := b.wire.Request(ctx, req)
	must(err)
	return resp.(R)
}

// sure panics with the error of an answer.
func sure(what string, code int16) {
	if err := kerr.ErrorForCode(code); err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}

// until tries again until something is so.
func until(what string, done func() bool) {
	give := time.NewTimer(patience)
	defer give.Stop()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for !done() {
		select {
		case <-pause.C:
		case <-give.C:
			panic("gave up waiting for " + what)
		}
	}
}

// wait lets time pass, which some sets need.
func wait(d time.Duration) { <-time.After(d) }

func (b *broker) createTopic(name string, partitions int32, configs ...string) {
	values := map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		values[configs[i]] = &configs[i+1]
	}
	resp, err := b.admin.CreateTopic(context.Background(), partitions, -1, values, name)
	must(err)
	must(resp.Err)
	b.awaitLeaders(name, partitions)
}

func (b *broker) awaitLeaders(name string, partitions int32) {
	for p := range partitions {
		until("a leader of "+name, func() bool { return b.listOffset(name, p, -1, 0).ErrorCode == 0 })
	}
}

func (b *broker) setTopic(name, key, value string) {
	resp, err := b.admin.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, name)
	must(err)
	must(resp[0].Err)
}

func (b *broker) listOffset(topic string, partition int32, timestamp int64, isolation int8) kmsg.ListOffsetsResponseTopicPartition {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	t, p := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	t.Topic, p.Partition, p.Timestamp = topic, partition, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.ListOffsetsResponse](b, 8, req).Topics[0].Partitions[0]
}

// producer is a producer id with its next sequence.
type producer struct {
	id       int64
	epoch    int16
	sequence int32
	txn      bool
}

// record is a record to be written; nil keys and values are null.
type record struct {
	timestamp  int64
	key, value []byte
	headers    []protocol.Header
}

func kv(timestamp int64, key, value string) record {
	return record{timestamp, []byte(key), []byte(value), nil}
}

// put appends one batch in a request of its own. A nil producer has no id.
func (b *broker) put(topic string, partition int32, txnID string, codec protocol.Codec, p *producer, records ...record) {
	spec := protocol.BatchSpec{Codec: codec, BaseTimestamp: records[0].timestamp, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if p != nil {
		spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = p.id, p.epoch, p.sequence, p.txn
		p.sequence += int32(len(records))
	}
	var list []protocol.Record
	for _, r := range records {
		list = append(list, protocol.Record{TimestampDelta: r.timestamp - spec.BaseTimestamp, Key: r.key, Value: r.value, Headers: r.headers})
	}
	batch, err := protocol.AppendBatch(nil, spec, list)
	must(err)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	if txnID != "" {
		req.TransactionID = &txnID
	}
	t, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	t.Topic, part.Partition, part.Records = topic, partition, batch
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	sure("produce to "+topic, ask[*kmsg.ProduceResponse](b, 12, req).Topics[0].Partitions[0].ErrorCode)
}

// coordinator waits for that of a group (kind 0) or a transactional id (1).
func (b *broker) coordinator(kind int8, key string) {
	until("the coordinator of "+key, func() bool {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey = kind, key
		return ask[*kmsg.FindCoordinatorResponse](b, 3, req).ErrorCode == 0
	})
}

// newProducer gets a producer id, for a transactional id if it is not "".
func (b *broker) newProducer(txnID string) *producer {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 900_000, -1, -1
	if txnID != "" {
		b.coordinator(1, txnID)
		req.TransactionalID = &txnID
	}
	p := &producer{txn: txnID != ""}
	until("a producer id", func() bool {
		resp := ask[*kmsg.InitProducerIDResponse](b, 4, req)
		p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
		return resp.ErrorCode == 0
	})
	return p
}

// state is that of a transactional id, and the error code of the answer.
func (b *broker) state(txnID string) (string, int16) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{txnID}
	s := ask[*kmsg.DescribeTransactionsResponse](b, 0, req).TransactionStates[0]
	return s.State, s.ErrorCode
}

// end ends a transaction by the second protocol, which gives the producer its next epoch, and waits for the markers.
func (b *broker) end(txnID string, p *producer, commit bool) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = txnID, p.id, p.epoch, commit
	resp := ask[*kmsg.EndTxnResponse](b, 5, req)
	sure("end of "+txnID, resp.ErrorCode)
	p.id, p.epoch, p.sequence = resp.ProducerID, resp.ProducerEpoch, 0
	until("the markers of "+txnID, func() bool {
		s, _ := b.state(txnID)
		return s == "CompleteCommit" || s == "CompleteAbort"
	})
}

// read fetches a partition up to what the isolation sees, with the aborted transactions in the order in which they are told.
func (b *broker) read(topic string, partition int32, isolation int8) (batches []byte, aborted []abortedRange) {
	aborted = []abortedRange{}
	at, end := b.listOffset(topic, partition, -2, 0).Offset, b.listOffset(topic, partition, -1, isolation).Offset
	for at < end {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 1<<24, isolation, -1
		t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
		t.Topic, p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = topic, partition, at, 1<<24, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		got := ask[*kmsg.FetchResponse](b, 12, req).Topics[0].Partitions[0]
		sure("fetch of "+topic, got.ErrorCode)
		for _, a := range got.AbortedTransactions {
			aborted = addOnce(aborted, abortedRange{a.ProducerID, a.FirstOffset})
		}
		if len(got.RecordBatches) == 0 {
			at++ // compaction left nothing at the end
			continue
		}
		for rest := got.RecordBatches; len(rest) > 0; {
			batch, next, err := protocol.SplitBatch(rest)
			must(err)
			batches, rest, at = append(batches, batch...), next, batch.Header().LastOffset()+1
		}
	}
	return batches, aborted
}

func addOnce(list []abortedRange, a abortedRange) []abortedRange {
	for _, other := range list {
		if other == a {
			return list
		}
	}
	return append(list, a)
}
