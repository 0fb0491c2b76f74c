package cluster

import (
	"context"
	"math"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerIDBlock is how many producer ids a broker gets at once.
const producerIDBlock = 1000

func brokerName(id int32) string { return strconv.Itoa(int(id)) }

// format makes the records of a cluster that has none: its id, its features, and min.insync.replicas as the cluster's dynamic default. Kafka
// sets that one when a cluster is made, from then on the static setting of a node has no say (KIP-966).
func (d *decider) format(clusterID string) []record {
	if d.im.ClusterID != "" {
		return nil
	}
	records := []record{clusterRecord{clusterID}}
	for _, f := range features {
		records = append(records, featureRecord{f.Name, f.Max})
	}
	value, _ := d.static.Value(minInsyncReplicas)
	return append(records, configRecord{kmsg.ConfigResourceTypeBroker, "", minInsyncReplicas, &value})
}

// register decides on the registration of a broker. One that has registered already, in this life, gets no record.
func (d *decider) register(r Registration) ([]record, error) {
	if d.im.ClusterID != "" && r.ClusterID != d.im.ClusterID {
		return nil, reject(kerr.InconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", d.im.ClusterID, r.ClusterID)
	}
	if b := d.im.Broker(r.BrokerID); b != nil && b.Incarnation == r.Incarnation {
		return nil, nil
	}
	return append(d.format(r.ClusterID), brokerRecord{Broker{
		ID: r.BrokerID, Incarnation: r.Incarnation, Endpoints: r.Endpoints, Rack: r.Rack, LogDirs: r.LogDirs,
	}}), nil
}

// allocateProducerIDs decides on a block of ids for a broker, whose record must be committed before any id of the block is used.
func (d *decider) allocateProducerIDs(brokerID int32, brokerEpoch int64) (first int64, records []record, err error) {
	b := d.im.Broker(brokerID)
	switch {
	case b == nil:
		return 0, nil, kerr.BrokerIDNotRegistered
	case b.Epoch != brokerEpoch:
		return 0, nil, kerr.StaleBrokerEpoch
	}
	first = d.im.nextProducerID
	if first > math.MaxInt64-producerIDBlock {
		return 0, nil, reject(kerr.UnknownServerError, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")
	}
	return first, []record{producerIDsRecord{brokerID, brokerEpoch, first + producerIDBlock}}, nil
}

// Unregister answers an UnregisterBroker request.
func (c *Controller) Unregister(ctx context.Context, req *kmsg.UnregisterBrokerRequest) *kmsg.UnregisterBrokerResponse {
	var refusal error
	err := c.do(ctx, func(d *decider) (records []record) {
		records, refusal = d.unregister(req.BrokerID)
		return records
	})
	if err == nil {
		err = refusal
	}
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	resp.ErrorMessage = new("")
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	}
	return resp
}

// unregister decides on the removal of a broker. The one that is asked lives, and would serve nobody without its registration.
func (d *decider) unregister(brokerID int32) ([]record, error) {
	switch {
	case d.im.Broker(brokerID) == nil:
		return nil, reject(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", brokerID)
	case brokerID == d.nodeID:
		return nil, reject(kerr.InvalidRequest, "Broker ID %d is running", brokerID)
	}
	return []record{removeBrokerRecord{brokerID}}, nil
}
