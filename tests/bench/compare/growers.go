package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// grown is what all growers have: a connection, and a topic.
type grown struct {
	b     *bed
	w     *wire
	topic string
}

func newGrown(ctx context.Context, b *bed, partitions int) (g grown, err error) {
	g.b = b
	if partitions > 0 {
		if g.topic, err = b.createTopic(ctx, partitions); err != nil {
			return g, err
		}
	}
	g.w, err = dial(ctx, b.address)
	return g, err
}

func (g grown) close() { g.w.close() }

// once sends a request until it is answered with something else than "not now".
func (g grown) once(ctx context.Context, req kmsg.Request, code func(kmsg.Response) int16) (kmsg.Response, error) {
	for {
		resp, err := g.w.ask(req)
		if err != nil {
			return nil, err
		}
		err = kerr.ErrorForCode(code(resp))
		if !kerr.IsRetriable(err) {
			return resp, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// batch is a Produce request of one record, of a producer if spec names one.
func (g grown) batch(partition int32, id *string, spec protocol.BatchSpec) (*kmsg.ProduceRequest, error) {
	spec.LeaderEpoch, spec.BaseTimestamp = -1, time.Now().UnixMilli()
	data, err := protocol.AppendBatch(nil, spec, []protocol.Record{{Value: growthValue}})
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TransactionID, req.TimeoutMillis = 12, -1, id, int32(answerPatience.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, data
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: g.topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	return req, nil
}

func (g grown) produce(ctx context.Context, partition int32, id *string, spec protocol.BatchSpec) error {
	req, err := g.batch(partition, id, spec)
	if err != nil {
		return err
	}
	_, err = g.once(ctx, req, func(resp kmsg.Response) int16 { return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode })
	return err
}

// manyPartitions have a record each, in topics as they were added.
type manyPartitions struct {
	grown
	frames [][]byte
}

func newManyPartitions(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, 0)
	return &manyPartitions{grown: g}, err
}

func (m *manyPartitions) grow(ctx context.Context, n int) error {
	more := n - len(m.frames)
	topic, err := m.b.createTopic(ctx, more)
	if err != nil {
		return err
	}
	for p := range more {
		f, err := produceFrame(topic, int32(p), -1, growthValue, 1)
		if err != nil {
			return err
		}
		if _, err := produceOne(m.w, f, nil, 1); err != nil {
			return err
		}
		m.frames = append(m.frames, f)
	}
	return nil
}

func (m *manyPartitions) probe(context.Context) error {
	_, err := produceOne(m.w, anyOf(m.frames), nil, 1)
	return err
}

// manyConnections write to one partition.
type manyConnections struct {
	grown
	frame []byte
	wires []*wire
}

func newManyConnections(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, 1)
	if err != nil {
		return nil, err
	}
	f, err := produceFrame(g.topic, 0, -1, growthValue, 1)
	return &manyConnections{grown: g, frame: f}, err
}

func (m *manyConnections) grow(ctx context.Context, n int) error {
	for len(m.wires) < n {
		w, err := dial(ctx, m.b.address)
		if err != nil {
			return err
		}
		m.wires = append(m.wires, w)
		if _, err := produceOne(w, m.frame, nil, 1); err != nil {
			return err
		}
	}
	return nil
}

func (m *manyConnections) probe(context.Context) error {
	_, err := produceOne(anyOf(m.wires), m.frame, nil, 1)
	return err
}

func (m *manyConnections) close() {
	for _, w := range m.wires {
		w.close()
	}
	m.grown.close()
}

// longLog is one partition with batches of logBatch bytes, more or less.
type longLog struct {
	grown
	fill, one []byte
	offsets   int64 // in the filled part
}

const (
	logBatch   = 64 << 10
	logRecords = 64
)

func newLongLog(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, 1)
	if err != nil {
		return nil, err
	}
	l := &longLog{grown: g}
	fill, err1 := produceFrame(g.topic, 0, -1, make([]byte, logBatch/logRecords), logRecords)
	one, err2 := produceFrame(g.topic, 0, -1, growthValue, 1)
	l.fill, l.one = fill, one
	return l, errors.Join(err1, err2)
}

// grow takes n as megabytes.
func (l *longLog) grow(_ context.Context, n int) error {
	for l.offsets < int64(n)*1e6/logBatch*logRecords {
		if _, err := produceOne(l.w, l.fill, nil, 1); err != nil {
			return err
		}
		l.offsets += logRecords
	}
	return nil
}

func (l *longLog) probe(context.Context) error {
	if _, err := produceOne(l.w, l.one, nil, 1); err != nil {
		return err
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.MinBytes, req.SessionEpoch = 11, -1, 1, 1, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = rand.Int64N(max(l.offsets, 1)), 1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: l.topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	resp, err := l.w.ask(req)
	if err != nil {
		return err
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return err
	}
	if len(got.RecordBatches) == 0 {
		return fmt.Errorf("nothing at offset %d", p.FetchOffset)
	}
	return nil
}

// manyProducers write to one partition; the number of a producer is its id.
type manyProducers struct {
	grown
	next []int32 // sequences
}

func newManyProducers(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, 1)
	return &manyProducers{grown: g}, err
}

func (m *manyProducers) write(ctx context.Context, id int) error {
	err := m.produce(ctx, 0, nil, protocol.BatchSpec{ProducerID: int64(id), BaseSequence: m.next[id]})
	m.next[id]++
	return err
}

func (m *manyProducers) grow(ctx context.Context, n int) error {
	for len(m.next) < n {
		m.next = append(m.next, 0)
		if err := m.write(ctx, len(m.next)-1); err != nil {
			return err
		}
	}
	return nil
}

func (m *manyProducers) probe(ctx context.Context) error { return m.write(ctx, rand.IntN(len(m.next))) }

// manyGroups have offsets of four partitions.
type manyGroups struct {
	grown
	frames [][]byte
}

func newManyGroups(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, 4)
	return &manyGroups{grown: g}, err
}

func (m *manyGroups) grow(ctx context.Context, n int) error {
	for len(m.frames) < n {
		req := commitRequest(fmt.Sprint(m.topic, "-", len(m.frames)), m.topic)
		if len(m.frames) == 0 { // has the internal topic made
			if err := m.w.coordinator(ctx, req.Group); err != nil {
				return err
			}
		}
		if _, err := m.once(ctx, req, commitCode); err != nil {
			return err
		}
		m.frames = append(m.frames, frame(req))
	}
	return nil
}

func commitCode(resp kmsg.Response) int16 {
	return resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (m *manyGroups) probe(context.Context) error {
	if err := m.w.send(anyOf(m.frames)); err != nil {
		return err
	}
	answer, err := m.w.receive()
	if err != nil {
		return err
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = 8
	return errors.Join(decode(answer, resp), kerr.ErrorForCode(commitCode(resp)))
}

// manyTransactions stay open on all partitions but the last, where the probe has its own.
type manyTransactions struct {
	grown
	open  int
	id    string // of the probe
	pid   int64
	epoch int16
}

const openOn = 10 // partitions

func newManyTransactions(ctx context.Context, b *bed) (grower, error) {
	g, err := newGrown(ctx, b, openOn+1)
	if err != nil {
		return nil, err
	}
	m := &manyTransactions{grown: g, id: g.topic + "-probe"}
	m.pid, m.epoch, err = m.init(ctx, m.id)
	return m, err
}

func (m *manyTransactions) init(ctx context.Context, id string) (pid int64, epoch int16, err error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKey, find.CoordinatorType = 3, id, 1
	if _, err := m.once(ctx, find, func(resp kmsg.Response) int16 { return resp.(*kmsg.FindCoordinatorResponse).ErrorCode }); err != nil {
		return 0, 0, err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, int32((15 * time.Minute).Milliseconds())
	resp, err := m.once(ctx, req, func(resp kmsg.Response) int16 { return resp.(*kmsg.InitProducerIDResponse).ErrorCode })
	if err != nil {
		return 0, 0, err
	}
	got := resp.(*kmsg.InitProducerIDResponse)
	return got.ProducerID, got.ProducerEpoch, nil
}

func (m *manyTransactions) grow(ctx context.Context, n int) error {
	for ; m.open < n; m.open++ {
		id := fmt.Sprint(m.topic, "-", m.open)
		pid, epoch, err := m.init(ctx, id)
		if err != nil {
			return err
		}
		if err := m.produce(ctx, int32(m.open%openOn), &id, protocol.BatchSpec{ProducerID: pid, ProducerEpoch: epoch, Transactional: true}); err != nil {
			return err
		}
	}
	return nil
}

func (m *manyTransactions) probe(ctx context.Context) error {
	if err := m.produce(ctx, openOn, &m.id, protocol.BatchSpec{ProducerID: m.pid, ProducerEpoch: m.epoch, Transactional: true}); err != nil {
		return err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, m.id, m.pid, m.epoch, true
	resp, err := m.once(ctx, req, func(resp kmsg.Response) int16 { return resp.(*kmsg.EndTxnResponse).ErrorCode })
	if err != nil {
		return err
	}
	got := resp.(*kmsg.EndTxnResponse)
	m.pid, m.epoch = got.ProducerID, got.ProducerEpoch
	return nil
}
