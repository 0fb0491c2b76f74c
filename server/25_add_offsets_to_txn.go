package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
	"oncelog/txncoordinator"
)

// AddOffsetsToTxn (25), versions 0 to 4.
//
// Behavior: AddPartitionsToTxn for the partition of __consumer_offsets that the group's offsets live on, which need not
// exist yet. Only clients of transaction version 1 and below send it.
//
// Version notes: v2 knows PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before), v3 is flexible, v4 knows TRANSACTION_ABORTABLE.

func (s *Server) handleAddOffsetsToTxn(r *request) pending {
	req := r.body.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	p, err := s.addInTxn(txncoordinator.AddPartitions{
		TransactionalID: req.TransactionalID,
		Producer:        txncoordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Partitions: txncoordinator.Partitions{{
			Name: offsetsTopic, Partitions: []int32{protocol.CoordinatorPartition(req.Group, s.internalPartitions(offsetsTopic))},
		}},
		Wait: completionWait,
	})
	if err != nil {
		resp.ErrorCode = s.codeOf(err)
		return answer(resp)
	}
	return awaitCoordinated(p, func(_ any, err error) kmsg.Response {
		resp.ErrorCode = fencedCode(s.codeOf(err), req.Version, 2)
		return resp
	})
}

// fencedCode is code for a client that knows PRODUCER_FENCED from version since on, and INVALID_PRODUCER_EPOCH before.
func fencedCode(code, version, since int16) int16 {
	if code == kerr.ProducerFenced.Code && version < since {
		return kerr.InvalidProducerEpoch.Code
	}
	return code
}
