package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// DescribeProducers (61), version 0.
//
// Behavior
//   - Tells of every producer that a partition knows: epoch, last sequence and timestamp, and where its open transaction
//     began (KIP-664). Any replica answers, not only the leader.
//   - What is wrong with a topic comes with a message, what is wrong with a partition without.

func (s *Server) handleDescribeProducers(r *request) pending {
	req := r.body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	again, named := newRepeats(), make(map[txnPartition]bool)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			row := kmsg.NewDescribeProducersResponseTopicPartition()
			row.Partition = index
			first := !named[txnPartition{t.Topic, index}]
			named[txnPartition{t.Topic, index}] = true
			err := errRepeats
			if first || !again.spent() {
				err = s.describeProducers(&row, t.Topic, index)
			}
			if !first && !again.take(sizeOfProducer*len(row.ActiveProducers)) {
				row.ActiveProducers, err = nil, errRepeats
			}
			if err != nil {
				row.ErrorCode, row.ErrorMessage = s.codeOf(err, "topic", t.Topic, "partition", index), errorMessage(err)
			}
			rt.Partitions = append(rt.Partitions, row)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return answer(resp)
}

// sizeOfProducer is what a producer takes on the wire.
const sizeOfProducer = 41

func (s *Server) describeProducers(row *kmsg.DescribeProducersResponseTopicPartition, topic string, index int32) error {
	replica := s.replicas.Get(topic, index)
	switch {
	case replica != nil:
	case protocol.CheckTopicName(topic) != nil:
		return withMessage(kerr.InvalidTopicException, "%s", protocol.CheckTopicName(topic))
	case s.image().Topic(topic) == nil:
		return withMessage(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
	default:
		return s.absent(topic, index)
	}
	producers, err := replica.Producers()
	if err != nil {
		return err
	}
	for _, p := range producers {
		active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		active.ProducerID, active.ProducerEpoch = p.ProducerID, int32(p.Epoch)
		active.LastSequence, active.LastTimestamp = p.LastSequence, p.LastTimestamp
		active.CoordinatorEpoch, active.CurrentTxnStartOffset = p.CoordinatorEpoch, p.TxnStartOffset
		row.ActiveProducers = append(row.ActiveProducers, active)
	}
	return nil
}
