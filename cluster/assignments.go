package cluster

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ElectLeaders answers an ElectLeaders request.
func (c *Controller) ElectLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	if req.TimeoutMillis <= 0 {
		return failElectLeaders(req, kerr.RequestTimedOut)
	}
	if req.ElectionType != electPreferred && req.ElectionType != electUnclean {
		return failElectLeaders(req, reject(kerr.InvalidRequest, "Unknown election type %d", req.ElectionType))
	}
	var resp *kmsg.ElectLeadersResponse
	err := c.do(ctx, func(d *decider) []record {
		resp = d.electLeaders(req)
		return nil
	})
	if err != nil {
		return failElectLeaders(req, err)
	}
	return resp
}

const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

func failElectLeaders(req *kmsg.ElectLeadersRequest, err error) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.Topics == nil || len(req.Topics) > 0 {
		resp.ErrorCode, _ = codeAndText(err)
	}
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			rt.Partitions = append(rt.Partitions, election(index, err))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func election(index int32, err error) kmsg.ElectLeadersResponseTopicPartition {
	p := kmsg.NewElectLeadersResponseTopicPartition()
	p.Partition = index
	p.ErrorCode, p.ErrorMessage = codeAndText(err)
	return p
}

// electLeaders never elects: a partition of one replica has the leader that it can have, or none. Asked for all partitions, it leaves out those
// that need no election.
func (d *decider) electLeaders(req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, index := range t.Partitions {
			rt.Partitions = append(rt.Partitions, election(index, d.elect(t.Topic, index, req.ElectionType)))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if req.Topics != nil {
		return resp
	}
	for t := range d.im.Topics() {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Name
		for i := range t.Partitions {
			if e := election(int32(i), d.elect(t.Name, int32(i), req.ElectionType)); e.ErrorCode != kerr.ElectionNotNeeded.Code {
				rt.Partitions = append(rt.Partitions, e)
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (d *decider) elect(topic string, index int32, kind int8) error {
	t := d.im.Topic(topic)
	if t == nil {
		return reject(kerr.UnknownTopicOrPartition, "No such topic as %s", topic)
	}
	if index < 0 || int(index) >= len(t.Partitions) {
		return reject(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", topic, index)
	}
	p := &t.Partitions[index]
	switch {
	case kind == electPreferred && p.Leader == p.Replicas[0], kind == electUnclean && p.Leader >= 0:
		return reject(kerr.ElectionNotNeeded, "Leader election not needed for topic partition.")
	case kind == electPreferred:
		return reject(kerr.PreferredLeaderNotAvailable, "The preferred leader was not available.")
	}
	return reject(kerr.EligibleLeadersNotAvailable, "Eligible topic partition leaders are not available.")
}

// AlterAssignments answers an AlterPartitionReassignments request.
func (c *Controller) AlterAssignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	if req.TimeoutMillis <= 0 && len(req.Topics) > 0 {
		return failAssignments(req, kerr.RequestTimedOut)
	}
	var resp *kmsg.AlterPartitionAssignmentsResponse
	err := c.do(ctx, func(d *decider) []record {
		resp = d.alterAssignments(req)
		return nil
	})
	if err != nil {
		return failAssignments(req, err)
	}
	return resp
}

func failAssignments(req *kmsg.AlterPartitionAssignmentsRequest, err error) *kmsg.AlterPartitionAssignmentsResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = true // the default, whatever was asked
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	assignments(req, resp, func(*kmsg.AlterPartitionAssignmentsRequestTopic, *kmsg.AlterPartitionAssignmentsRequestTopicPartition) error {
		return err
	})
	return resp
}

// assignments answers each partition of a request.
func assignments(
	req *kmsg.AlterPartitionAssignmentsRequest, resp *kmsg.AlterPartitionAssignmentsResponse,
	decide func(*kmsg.AlterPartitionAssignmentsRequestTopic, *kmsg.AlterPartitionAssignmentsRequestTopicPartition) error,
) {
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for j := range t.Partitions {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = t.Partitions[j].Partition
			p.ErrorCode, p.ErrorMessage = codeAndText(decide(t, &t.Partitions[j]))
			rt.Partitions = append(rt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// alterAssignments changes nothing: there is one broker that a replica can be on.
func (d *decider) alterAssignments(req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	if len(req.Topics) == 0 {
		resp.AllowReplicationFactorChange, resp.ErrorMessage = true, new("") // as Kafka's broker answers by itself
	}
	assignments(req, resp, d.alterAssignment)
	return resp
}

func (d *decider) alterAssignment(rt *kmsg.AlterPartitionAssignmentsRequestTopic, rp *kmsg.AlterPartitionAssignmentsRequestTopicPartition) error {
	t := d.im.Topic(rt.Topic)
	if t == nil {
		return reject(kerr.UnknownTopicOrPartition, "Unable to find a topic named %s.", rt.Topic)
	}
	if rp.Partition < 0 || int(rp.Partition) >= len(t.Partitions) {
		return reject(kerr.UnknownTopicOrPartition, "Unable to find partition %s:%d.", rt.Topic, rp.Partition)
	}
	if rp.Replicas == nil {
		return kerr.NoReassignmentInProgress
	}
	if err := d.checkReplicas(rp.Replicas, 0); err != nil {
		return err
	}
	if !slices.Equal(rp.Replicas, t.Partitions[rp.Partition].Replicas) {
		return reject(kerr.InvalidReplicaAssignment, "Replicas cannot be moved: brokers do not replicate.")
	}
	return nil
}
