package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/partition"
	"oncelog/protocol"
)

// Produce (0), versions 3 to 13. ApiVersions says 0: librdkafka looks for it before it compresses (KAFKA-18659).
//
// Behavior
//   - One batch per partition, appended from the request's own bytes. A partition that is named twice counts as its last.
//   - Transactional batches come from one producer. Those that open the transaction in their partition are verified with, or
//     added by, the transaction coordinator before they are appended (KIP-890); the reader of the connection waits for that.
//   - acks=-1 waits for the high watermark off the reader, so the waits of pipelined requests overlap. So does either acks wait for
//     the disk where flush.messages wants that. acks=0 has no answer; an error closes the connection.
//   - Internal topics take nothing from any client.
//
// Version notes
//   - 5: log start offset. 8: errors of single records (KIP-467). 9: flexible. 10: the leader, where another one is meant
//     (KIP-951). 11: the client knows TRANSACTION_ABORTABLE. 12: the leader adds partitions to transactions. 13: topic ids.
//
// Where we differ: null records are INVALID_RECORD, where Kafka never answers. A transactional batch without a producer id
// is INVALID_RECORD, where Kafka appends it and knows nothing of its transaction.

const produceKey = 0

// produceRow is one partition of a Produce that is to be appended to.
type produceRow struct {
	topic    string
	replica  *partition.Partition
	batch    protocol.Batch
	header   protocol.BatchHeader
	guard    partition.Guard
	at       [2]int32 // its topic and partition in the response
	appended partition.Appended
	placed   bool // appended means something
	err      error
}

// produce is one Produce on its way.
type produce struct {
	server  *Server
	request *request
	req     *kmsg.ProduceRequest
	resp    kmsg.ProduceResponse
	rows    []produceRow
	failed  bool // some partition has an error
	// syncHere tells that the reader may wait for the disk: its client wants one thing at a time.
	syncHere bool

	// Most requests are about one partition, and need no more memory for it than this.
	oneRow   [1]produceRow
	oneTopic [1]kmsg.ProduceResponseTopic
}

func (s *Server) handleProduce(r *request) pending {
	req := r.body.(*kmsg.ProduceRequest)
	p := &produce{server: s, request: r, req: req}
	p.resp.Default()
	p.resp.Version = req.Version
	if err := p.take(); err != nil {
		p.refuseAll(err)
		return p.answer()
	}
	if err := p.verify(r.context(s)); err != nil {
		p.refuseAll(err)
		return p.answer()
	}
	p.syncHere = r.conn != nil && req.Acks != 0 && len(p.rows) == 1 && r.conn.syncsAlone(r.received)
	for i := range p.rows {
		p.append(&p.rows[i])
	}
	if r.conn != nil && len(p.rows) > 0 && (p.rows[0].appended.Flush > 0 || p.rows[0].appended.SyncedHere) {
		r.conn.lookAhead(p.rows[0].appended.SyncedHere)
	}
	if p.acknowledged() {
		p.finish()
		return p.answer()
	}
	return await(func(ctx context.Context) kmsg.Response {
		p.awaitAcknowledged(ctx)
		p.finish()
		return &p.resp
	})
}

// answer is the pending of a Produce that waits for nothing.
func (p *produce) answer() pending {
	switch {
	case p.req.Acks != 0:
		return answer(&p.resp)
	case p.failed:
		return hangup()
	default:
		return pending{}
	}
}

// take makes a response row of each partition, and a row of what can be tried to
// append. An error refuses the whole request.
func (p *produce) take() error {
	places := newProducePlaces(p.req)
	p.rows, p.resp.Topics = p.oneRow[:0], p.oneTopic[:0]
	if places.total > 1 {
		p.rows = make([]produceRow, 0, places.total)
	}
	if len(p.req.Topics) > 1 {
		p.resp.Topics = make([]kmsg.ProduceResponseTopic, 0, len(p.req.Topics))
	}
	var denied error
	for i := range p.req.Topics {
		t := &p.req.Topics[i]
		if len(t.Partitions) == 0 {
			continue
		}
		at := places.topic(&p.resp, t)
		for j := range t.Partitions {
			in := &t.Partitions[j]
			topic := &p.resp.Topics[at]
			if !places.last(at, i, j) {
				continue
			}
			out := kmsg.NewProduceResponseTopicPartition()
			out.Partition, out.BaseOffset = in.Partition, -1
			topic.Partitions = append(topic.Partitions, out)
			row := produceRow{at: [2]int32{int32(at), int32(len(topic.Partitions) - 1)}}
			if err := p.open(&row, t, in); err != nil {
				p.fail(&row, err, -1)
			} else {
				p.rows = append(p.rows, row)
			}
			// As in Kafka, where access to the transactional id is asked for by whatever holds a transactional batch.
			if p.req.TransactionID == nil && row.batch != nil && row.header.Transactional() {
				denied = kerr.TransactionalIDAuthorizationFailed
			}
		}
	}
	return denied
}

// producePlaces finds out which entries of a request are about the same topic or
// partition. Large requests get maps for it, small ones are looked through.
type producePlaces struct {
	req    *kmsg.ProduceRequest
	total  int                   // partitions
	topics map[produceTopic]int  // place in the response; nil for a small request
	lasts  map[[2]int32][2]int32 // by place of the topic and partition: its last entry
}

type produceTopic struct {
	name string
	id   [16]byte
}

func newProducePlaces(req *kmsg.ProduceRequest) producePlaces {
	const small = 32
	places := producePlaces{req: req}
	for i := range req.Topics {
		places.total += len(req.Topics[i].Partitions)
	}
	if places.total+len(req.Topics) <= small {
		return places
	}
	places.topics = make(map[produceTopic]int, len(req.Topics))
	places.lasts = make(map[[2]int32][2]int32, places.total)
	for i := range req.Topics {
		t := &req.Topics[i]
		if len(t.Partitions) == 0 {
			continue
		}
		key := produceTopic{t.Topic, t.TopicID}
		at, ok := places.topics[key]
		if !ok {
			at = len(places.topics)
			places.topics[key] = at
		}
		for j := range t.Partitions {
			places.lasts[[2]int32{int32(at), t.Partitions[j].Partition}] = [2]int32{int32(i), int32(j)}
		}
	}
	return places
}

// topic gives the place of a topic in the response, where it is put if it has
// none. One that is named twice has one place.
func (places *producePlaces) topic(resp *kmsg.ProduceResponse, t *kmsg.ProduceRequestTopic) int {
	if places.topics != nil {
		if at := places.topics[produceTopic{t.Topic, t.TopicID}]; at < len(resp.Topics) {
			return at
		}
	} else {
		for at := range resp.Topics {
			if rt := &resp.Topics[at]; rt.Topic == t.Topic && rt.TopicID == t.TopicID {
				return at
			}
		}
	}
	rt := kmsg.NewProduceResponseTopic()
	rt.Topic, rt.TopicID = t.Topic, t.TopicID
	rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, 0, len(t.Partitions))
	resp.Topics = append(resp.Topics, rt)
	return len(resp.Topics) - 1
}

// last tells whether the j-th partition of the i-th topic, which is at a place
// of the response, is not named again further on.
func (places *producePlaces) last(at, i, j int) bool {
	t := &places.req.Topics[i]
	index := t.Partitions[j].Partition
	if places.lasts != nil {
		return places.lasts[[2]int32{int32(at), index}] == [2]int32{int32(i), int32(j)}
	}
	for ; i < len(places.req.Topics); i, j = i+1, -1 {
		other := &places.req.Topics[i]
		if other.Topic != t.Topic || other.TopicID != t.TopicID {
			continue
		}
		for k := j + 1; k < len(other.Partitions); k++ {
			if other.Partitions[k].Partition == index {
				return false
			}
		}
	}
	return true
}

// open finds the replica and the batch of a partition.
func (p *produce) open(row *produceRow, t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition) error {
	row.topic = t.Topic
	var err error
	if row.replica, err = p.replica(row, t, in.Partition); err != nil && !errors.Is(err, kerr.NotLeaderForPartition) {
		row.batch, _, _ = protocol.SplitBatch(in.Records)
		if row.batch != nil {
			row.header = row.batch.Header()
		}
		return err
	}
	batch, rest, err2 := protocol.SplitBatch(in.Records)
	switch {
	case errors.Is(err2, protocol.ErrCorrupt):
		return corruptBatch(err2)
	case err2 != nil:
		return kerr.InvalidRecord
	}
	row.batch, row.header = batch, batch.Header()
	if len(rest) > 0 {
		// Less than a batch is dropped, one more is refused, and bytes that can't become one are corrupt, as in Kafka.
		switch _, _, err := protocol.SplitBatch(rest); {
		case err == nil, errors.Is(err, protocol.ErrMagic):
			return kerr.InvalidRecord
		case errors.Is(err, protocol.ErrCorrupt):
			return kerr.CorruptMessage
		}
	}
	switch {
	case row.header.Codec() == protocol.CodecZstd && p.req.Version < 7:
		return kerr.UnsupportedCompressionType
	case row.header.Transactional() && row.header.ProducerID < 0:
		return kerr.InvalidRecord
	case err != nil:
		return err
	}
	return nil
}

// corruptBatch is the answer to bytes that don't begin like a batch, in Kafka's
// words where it has some.
func corruptBatch(err error) error {
	text := strings.TrimPrefix(err.Error(), protocol.ErrCorrupt.Error()+": ")
	if strings.HasPrefix(text, "Record size") || strings.HasPrefix(text, "Invalid magic") {
		return &messageError{kerr.CorruptMessage, text}
	}
	return kerr.CorruptMessage
}

// replica finds the replica of a partition.
func (p *produce) replica(row *produceRow, t *kmsg.ProduceRequestTopic, index int32) (*partition.Partition, error) {
	s := p.server
	if p.req.Version < 13 {
		if replica := s.replicas.Get(t.Topic, index); replica != nil {
			return replica, nil
		}
		return nil, s.absent(t.Topic, index)
	}
	if replica := s.replicas.GetByID(t.TopicID, index); replica != nil {
		row.topic = replica.Topic()
		return replica, nil
	}
	known := s.image().TopicByID(t.TopicID)
	if known == nil {
		return nil, kerr.UnknownTopicID
	}
	row.topic = known.Name
	return nil, s.absent(known.Name, index)
}

// verify has the transactional batches that open their transaction in a
// partition verified or added by the coordinator. An error refuses the whole
// request, what concerns one row is noted there.
func (p *produce) verify(ctx context.Context) error {
	op := produceOp(p.req.Version)
	var first *produceRow
	var check txnCheck
	var asked []*produceRow
	for i := range p.rows {
		row := &p.rows[i]
		if !row.header.Transactional() {
			continue
		}
		if first == nil {
			first = row
		}
		if row.header.ProducerID != first.header.ProducerID || row.header.ProducerEpoch != first.header.ProducerEpoch {
			return withMessage(kerr.InvalidProducerIDMapping, "Transactional records contained more than one producer ID")
		}
	}
	if first == nil || op != txnAdd && !p.server.cfg().Bool("transaction.partition.verification.enable") {
		return nil
	}
	for i := range p.rows {
		row := &p.rows[i]
		if !row.header.Transactional() || row.replica == nil {
			continue
		}
		var needed bool
		row.guard, needed, row.err = row.replica.Verify(row.header.ProducerID, row.header.ProducerEpoch, row.header.BaseSequence, op == txnAdd, p.request.received)
		if row.err == nil && needed {
			check.partitions = append(check.partitions, txnPartition{row.topic, row.replica.Index()})
			asked = append(asked, row)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	if c := p.request.conn; c != nil {
		if err := c.flushIdle(); err != nil { // nobody shall wait for what is known already
			return err
		}
	}
	check.transactionalID, check.op, check.patient = *p.req.TransactionID, op, true
	check.producerID, check.producerEpoch = first.header.ProducerID, first.header.ProducerEpoch
	for i, err := range p.server.checkTxn(ctx, check) {
		if err != nil {
			row := asked[i]
			code, message := verificationAnswer(err, op)
			row.err = kerr.ErrorForCode(code)
			if message != nil {
				row.err = &messageError{row.err.(*kerr.Error), *message}
			}
		}
	}
	return nil
}

// produceOp is what a transactional Produce asks of the coordinator.
func produceOp(version int16) txnOp {
	switch {
	case version <= 10:
		return txnVerify
	case version == 11:
		return txnVerifyAbortable
	default:
		return txnAdd
	}
}

// isInternal tells whether only coordinators write to a topic.
func isInternal(topic string) bool { return cluster.IsInternal(topic) }

// append appends one row's batch.
func (p *produce) append(row *produceRow) {
	row.appended = partition.Appended{LogStart: -1}
	switch {
	case row.err != nil:
		return
	case p.req.Acks < -1 || p.req.Acks > 1:
		row.err = kerr.InvalidRequiredAcks
		return
	case isInternal(row.topic):
		row.err = kerr.InvalidTopicException
		return
	case row.replica == nil:
		row.err = kerr.NotLeaderForPartition
		return
	}
	row.appended, row.err = row.replica.Append(partition.AppendRequest{
		Batch:       row.batch,
		Origin:      partition.OriginClient,
		Acks:        p.req.Acks,
		Guard:       row.guard,
		ExpectEpoch: -1,
		SyncHere:    p.syncHere,
		Now:         p.request.received,
	})
	row.placed = row.err == nil
	if row.placed && !row.appended.Duplicate {
		t := p.server.metrics.topic(row.topic)
		t.bytesIn.Add(int64(len(row.batch)))
		t.recordsIn.Add(int64(row.header.NumRecords))
	}
}

// acknowledged tells whether nothing has to be waited for.
func (p *produce) acknowledged() bool {
	if p.req.Acks == 0 {
		return true
	}
	for i := range p.rows {
		row := &p.rows[i]
		if row.err == nil && (row.appended.Flush > 0 || p.req.Acks == -1 && row.replica.Offsets().HW <= row.appended.LastOffset) {
			return false
		}
	}
	return true
}

// awaitAcknowledged waits until all batches are on all replicas in sync, or the time of the request is over, and until they are on
// disk where that was asked for. What is appended stays.
func (p *produce) awaitAcknowledged(ctx context.Context) {
	if p.req.Acks == -1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, p.request.received.Add(time.Duration(p.req.TimeoutMillis)*time.Millisecond))
		defer cancel()
	}
	for i := range p.rows {
		row := &p.rows[i]
		if row.err == nil && p.req.Acks == -1 {
			row.err = row.replica.AwaitHW(ctx, row.appended.LastOffset+1)
		}
		if row.err == nil && row.appended.Flush > 0 {
			row.err = row.replica.AwaitDurable(ctx, row.appended.Flush)
		}
	}
}

// finish writes what has become of the rows into the response.
func (p *produce) finish() {
	for i := range p.rows {
		row := &p.rows[i]
		if row.err != nil {
			p.fail(row, row.err, row.appended.LogStart)
		}
		if row.placed { // also if it was not committed in time
			out := p.row(row)
			out.BaseOffset, out.LogAppendTime, out.LogStartOffset = row.appended.BaseOffset, row.appended.LogAppendTime, row.appended.LogStart
		}
	}
}

func (p *produce) row(row *produceRow) *kmsg.ProduceResponseTopicPartition {
	return &p.resp.Topics[row.at[0]].Partitions[row.at[1]]
}

// fail writes an error into the response.
func (p *produce) fail(row *produceRow, err error, logStart int64) {
	p.failed = true
	out := p.row(row)
	out.ErrorCode = p.server.codeOf(err, "topic", row.topic, "partition", out.Partition)
	out.LogStartOffset = logStart
	p.server.metrics.produceError(out.ErrorCode)
	if m, ok := errors.AsType[*messageError](err); ok {
		out.ErrorMessage = &m.message
	}
	if records, ok := errors.AsType[*partition.RecordErrors](err); ok {
		out.ErrorMessage = &records.Message
		for _, r := range records.Records {
			bad := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			bad.RelativeOffset, bad.ErrorMessage = r.BatchIndex, &r.Message
			out.ErrorRecords = append(out.ErrorRecords, bad)
		}
	}
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && p.req.Version >= 10 {
		p.nameLeader(row, out)
	}
}

// nameLeader tells who leads a partition that is not led here (KIP-951).
func (p *produce) nameLeader(row *produceRow, out *kmsg.ProduceResponseTopicPartition) {
	leader, epoch := p.server.leaderOf(row.topic, out.Partition)
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
	host, port, rack, ok := p.server.leaderEndpoint(p.request, leader)
	if !ok || slices.ContainsFunc(p.resp.Brokers, func(b kmsg.ProduceResponseBroker) bool { return b.NodeID == leader }) {
		return
	}
	b := kmsg.NewProduceResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = leader, host, port, rack
	p.resp.Brokers = append(p.resp.Brokers, b)
}

// refuseAll makes the response one error for every partition.
func (p *produce) refuseAll(err error) {
	p.failed = true
	code := p.server.codeOf(err)
	p.server.metrics.produceError(code)
	for i := range p.resp.Topics {
		t := &p.resp.Topics[i]
		for j := range t.Partitions {
			out := kmsg.NewProduceResponseTopicPartition()
			out.Partition, out.ErrorCode, out.BaseOffset = t.Partitions[j].Partition, code, -1
			if m, ok := errors.AsType[*messageError](err); ok {
				out.ErrorMessage = &m.message
			}
			t.Partitions[j] = out
		}
	}
	p.resp.Brokers = nil
}
