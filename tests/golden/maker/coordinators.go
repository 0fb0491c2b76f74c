package main

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// expiring leaves the tombstone of a transactional id, with a broker whose ids expire soon.
func expiring(b *broker) {
	b.createTopic("input", 2)
	p := b.newProducer("tx-dead")
	b.put("input", 0, "tx-dead", 0, p, kv(t0, "k", "before tx-dead expires"))
	b.end("tx-dead", p, true)
	const notFound = 105
	until("the end of tx-dead", func() bool {
		_, code := b.state("tx-dead")
		return code == notFound
	})
}

// coordinators leaves records of every kind in the internal topics.
func coordinators(b *broker) {
	classicCoordinators(b)
	b.consumerGroup()
	b.shareGroup()
}

// classicCoordinators leaves those of transactions and of groups of the classic protocol.
func classicCoordinators(b *broker) {
	b.awaitLeaders("input", 2)
	for i := range int64(4) {
		b.put("input", int32(i%2), "", 0, nil, kv(t0+i, "k", "v"))
	}
	b.transactionalIDs()
	b.classicGroup()
	b.coordinator(0, "simple-group")
	b.commitOffsets("simple-group", "", -1, "", 1, 1)
	b.deleteOffset("simple-group", 1)
}

// transactionalIDs leaves one in each state that one can be left in.
func (b *broker) transactionalIDs() {
	b.newProducer("tx-empty")
	commit, abort, ongoing := b.newProducer("tx-commit"), b.newProducer("tx-abort"), b.newProducer("tx-ongoing")
	send := func(id string, p *producer, partition int32) {
		p.sequence = 0 // each partition gets one batch of each epoch
		b.put("input", partition, id, 0, p, kv(t0, id, "v"))
	}
	send("tx-commit", commit, 0)
	send("tx-commit", commit, 1)
	b.end("tx-commit", commit, true)
	send("tx-abort", abort, 0)
	b.end("tx-abort", abort, false)
	send("tx-ongoing", ongoing, 1)
	b.txnOffsets("tx-ongoing", ongoing)
	send("tx-fenced", b.newProducer("tx-fenced"), 0)
	b.newProducer("tx-fenced") // aborts what the one before left open

	// One of the first protocol, ended with nothing in it.
	const id = "tx-first-protocol"
	first := b.newProducer(id)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, first.id, first.epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = "input", []int32{0, 1}
	add.Topics = append(add.Topics, t)
	for _, p := range ask[*kmsg.AddPartitionsToTxnResponse](b, 3, add).Topics[0].Partitions {
		sure("add a partition", p.ErrorCode)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, first.id, first.epoch, true
	sure("end of "+id, ask[*kmsg.EndTxnResponse](b, 4, end).ErrorCode)
}

// txnOffsets commits an offset within a transaction.
func (b *broker) txnOffsets(id string, p *producer) {
	b.coordinator(0, "tx-group")
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, "tx-group", p.id, p.epoch, -1
	t, part := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	t.Topic, part.Offset, part.LeaderEpoch = "input", 1, 0
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	until("offsets in a transaction", func() bool {
		return ask[*kmsg.TxnOffsetCommitResponse](b, 5, req).Topics[0].Partitions[0].ErrorCode == 0
	})
}

func (b *broker) commitOffsets(group, member string, generation int32, metadata string, offsets ...int64) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "input"
	for i, offset := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(i), offset, 0, &metadata
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	sure("offsets of "+group, ask[*kmsg.OffsetCommitResponse](b, 9, req).Topics[0].Partitions[0].ErrorCode)
}

func (b *broker) deleteOffset(group string, partition int32) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic, t.Partitions = "input", []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}
	req.Topics = append(req.Topics, t)
	sure("delete an offset", ask[*kmsg.OffsetDeleteResponse](b, 0, req).ErrorCode)
}

// classicGroup leaves a stable group of one member, with offsets.
func (b *broker) classicGroup() {
	const group = "classic-group"
	b.coordinator(0, group)
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics = []string{"input"}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = group, 300_000, 300_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription.AppendTo(nil)}}
	var joined *kmsg.JoinGroupResponse
	until("a member of "+group, func() bool {
		joined = ask[*kmsg.JoinGroupResponse](b, 9, join)
		join.MemberID = joined.MemberID
		return joined.ErrorCode == 0
	})
	assignment := kmsg.NewConsumerMemberAssignment()
	assignment.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "input", Partitions: []int32{0, 1}}}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID = group, joined.Generation, joined.MemberID
	sync.ProtocolType, sync.Protocol = joined.ProtocolType, joined.Protocol
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: assignment.AppendTo(nil)}}
	sure("sync of "+group, ask[*kmsg.SyncGroupResponse](b, 5, sync).ErrorCode)
	b.commitOffsets(group, joined.MemberID, joined.Generation, "first", 1, 2)
	b.commitOffsets(group, joined.MemberID, joined.Generation, "second", 2, 2)
}

// consumerGroup leaves a group of KIP-848 with one member.
func (b *broker) consumerGroup() {
	const group = "consumer-group"
	b.coordinator(0, group)
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, protocol.NewUUID().String(), 300_000
	req.SubscribedTopicNames, req.Topics = []string{"input"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	var resp *kmsg.ConsumerGroupHeartbeatResponse
	until("an assignment of "+group, func() bool {
		if resp = ask[*kmsg.ConsumerGroupHeartbeatResponse](b, 1, req); resp.ErrorCode != 0 {
			return false
		}
		req.MemberEpoch, req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = resp.MemberEpoch, -1, nil, nil
		return resp.Assignment != nil && len(resp.Assignment.Topics) > 0
	})
	for _, t := range resp.Assignment.Topics {
		req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
	}
	sure("heartbeat of "+group, ask[*kmsg.ConsumerGroupHeartbeatResponse](b, 1, req).ErrorCode)
	b.commitOffsets(group, req.MemberID, req.MemberEpoch, "by epoch", 1, 1)
}

// shareGroup leaves a share group that accepted, released and rejected records.
func (b *broker) shareGroup() {
	const group = "share-group"
	earliest := "earliest"
	config := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.auto.offset.reset", Value: &earliest}}
	config.Resources = append(config.Resources, r)
	sure("config of "+group, ask[*kmsg.IncrementalAlterConfigsResponse](b, 1, config).Resources[0].ErrorCode)
	b.coordinator(0, group)
	member := protocol.NewUUID().String()
	beat := kmsg.NewPtrShareGroupHeartbeatRequest()
	beat.GroupID, beat.MemberID, beat.SubscribedTopicNames = group, member, []string{"input"}
	var resp *kmsg.ShareGroupHeartbeatResponse
	until("an assignment of "+group, func() bool {
		if resp = ask[*kmsg.ShareGroupHeartbeatResponse](b, 1, beat); resp.ErrorCode != 0 {
			return false
		}
		beat.MemberEpoch = resp.MemberEpoch
		return resp.Assignment != nil && len(resp.Assignment.TopicPartitions) > 0
	})
	fetch := kmsg.NewPtrShareFetchRequest()
	fetch.GroupID, fetch.MemberID = &beat.GroupID, &member
	fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes, fetch.MaxRecords, fetch.BatchSize = 1000, 1, 1<<20, 10, 10
	assigned := resp.Assignment.TopicPartitions[0]
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = assigned.TopicID
	for _, p := range assigned.Partitions {
		part := kmsg.NewShareFetchRequestTopicPartition()
		part.Partition = p
		t.Partitions = append(t.Partitions, part)
	}
	fetch.Topics = append(fetch.Topics, t)
	until("records for "+group, func() bool {
		got := ask[*kmsg.ShareFetchResponse](b, 1, fetch)
		sure("fetch of "+group, got.ErrorCode)
		fetch.ShareSessionEpoch++
		fetch.Topics = nil
		acknowledged := 0
		for _, topic := range got.Topics {
			if n := b.acknowledge(fetch, topic); n > 0 {
				acknowledged += n
				fetch.ShareSessionEpoch++
			}
		}
		return acknowledged > 0
	})
	wait(500 * time.Millisecond) // the state is written behind the answer
}

// acknowledge accepts what came, but for the second record of each range, which it releases, and the last, which it rejects.
func (b *broker) acknowledge(fetch *kmsg.ShareFetchRequest, topic kmsg.ShareFetchResponseTopic) (n int) {
	const accept, release, reject = 1, 2, 3
	at := kmsg.NewShareAcknowledgeRequestTopic()
	at.TopicID = topic.TopicID
	for _, p := range topic.Partitions {
		for _, acquired := range p.AcquiredRecords {
			part := kmsg.NewShareAcknowledgeRequestTopicPartition()
			part.Partition = p.Partition
			for o := acquired.FirstOffset; o <= acquired.LastOffset; o++ {
				kind := int8(accept)
				switch o {
				case acquired.FirstOffset + 1:
					kind = release
				case acquired.LastOffset:
					kind = reject
				}
				part.AcknowledgementBatches = append(part.AcknowledgementBatches,
					kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{FirstOffset: o, LastOffset: o, AcknowledgeTypes: []int8{kind}})
				n++
			}
			at.Partitions = append(at.Partitions, part)
		}
	}
	if n == 0 {
		return 0
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = fetch.GroupID, fetch.MemberID, fetch.ShareSessionEpoch
	req.Topics = append(req.Topics, at)
	sure(fmt.Sprintf("acknowledge %d records", n), ask[*kmsg.ShareAcknowledgeResponse](b, 1, req).ErrorCode)
	return n
}
