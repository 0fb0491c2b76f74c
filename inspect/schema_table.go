package inspect

// messageShapes is what Apache Kafka 4.4 writes: one line per message, see messages. The records of coordinators, of the metadata log, and what is
// within them.
const messageShapes = `
group-key 0 LegacyOffsetCommitKey 0-0 - group:string topic:string partition:int32
group-value 0 LegacyOffsetCommitValue 0-0 - offset:int64 metadata:string commitTimestamp:int64
group-key 1 OffsetCommitKey 0-0 - group:string topic:string partition:int32
group-value 1 OffsetCommitValue 0-4 4 offset:int64 leaderEpoch:int32@3-=-1 metadata:string commitTimestamp:int64 expireTimestamp:int64@1-1=-1 \
    topicId:uuid@4-#0
group-key 2 GroupMetadataKey 0-0 - group:string
group-value 2 GroupMetadataValue 0-4 4 protocolType:string generation:int32 protocol:string?0 leader:string?0 currentStateTimestamp:int64@2-=-1 \
    members:[]{ memberId:string groupInstanceId:string@3-?3=null clientId:string clientHost:string rebalanceTimeout:int32@1-=-1 sessionTimeout:int32 \
    subscription:bytes assignment:bytes }
group-key 3 ConsumerGroupMetadataKey 0-0 - groupId:string
group-value 3 ConsumerGroupMetadataValue 0-0 0 epoch:int32 metadataHash:int64#0
group-key 4 ConsumerGroupPartitionMetadataKey 0-0 - groupId:string
group-value 4 ConsumerGroupPartitionMetadataValue 0-0 0 topics:[]{ topicId:uuid topicName:string numPartitions:int32 partitionMetadata:[]{ \
    partition:int32 racks:[]string } }
group-key 5 ConsumerGroupMemberMetadataKey 0-0 - groupId:string memberId:string
group-value 5 ConsumerGroupMemberMetadataValue 0-0 0 instanceId:string?0 rackId:string?0 clientId:string clientHost:string \
    subscribedTopicNames:[]string subscribedTopicRegex:string?0 rebalanceTimeoutMs:int32=-1 serverAssignor:string?0 classicMemberMetadata:?0#0{ \
    sessionTimeoutMs:int32 supportedProtocols:[]{ name:string metadata:bytes } }
group-key 6 ConsumerGroupTargetAssignmentMetadataKey 0-0 - groupId:string
group-value 6 ConsumerGroupTargetAssignmentMetadataValue 0-0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
group-key 7 ConsumerGroupTargetAssignmentMemberKey 0-0 - groupId:string memberId:string
group-value 7 ConsumerGroupTargetAssignmentMemberValue 0-0 0 topicPartitions:[]{ topicId:uuid partitions:[]int32 }
group-key 8 ConsumerGroupCurrentMemberAssignmentKey 0-0 - groupId:string memberId:string
group-value 8 ConsumerGroupCurrentMemberAssignmentValue 0-0 0 memberEpoch:int32 previousMemberEpoch:int32 state:int8 assignedPartitions:[]{ \
    topicId:uuid partitions:[]int32 assignmentEpochs:[]int32?0#0 } partitionsPendingRevocation:[]{ topicId:uuid partitions:[]int32 \
    assignmentEpochs:[]int32?0#0 }
group-key 10 ShareGroupMemberMetadataKey 0-0 - groupId:string memberId:string
group-value 10 ShareGroupMemberMetadataValue 0-0 0 rackId:string?0 clientId:string clientHost:string subscribedTopicNames:[]string
group-key 11 ShareGroupMetadataKey 0-0 - groupId:string
group-value 11 ShareGroupMetadataValue 0-0 0 epoch:int32 metadataHash:int64
group-key 12 ShareGroupTargetAssignmentMetadataKey 0-0 - groupId:string
group-value 12 ShareGroupTargetAssignmentMetadataValue 0-0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
group-key 13 ShareGroupTargetAssignmentMemberKey 0-0 - groupId:string memberId:string
group-value 13 ShareGroupTargetAssignmentMemberValue 0-0 0 topicPartitions:[]{ topicId:uuid partitions:[]int32 }
group-key 14 ShareGroupCurrentMemberAssignmentKey 0-0 - groupId:string memberId:string
group-value 14 ShareGroupCurrentMemberAssignmentValue 0-0 0 memberEpoch:int32 previousMemberEpoch:int32 state:int8 assignedPartitions:[]{ \
    topicId:uuid partitions:[]int32 }
group-key 15 ShareGroupStatePartitionMetadataKey 0-0 - groupId:string
group-value 15 ShareGroupStatePartitionMetadataValue 0-0 0 initializingTopics:[]{ topicId:uuid topicName:string partitions:[]int32 } \
    initializedTopics:[]{ topicId:uuid topicName:string partitions:[]int32 } deletingTopics:[]{ topicId:uuid topicName:string }
group-key 16 ConsumerGroupRegularExpressionKey 0-0 - groupId:string regularExpression:string
group-value 16 ConsumerGroupRegularExpressionValue 0-0 0 topics:[]string version:int64 timestamp:int64
group-key 17 StreamsGroupMetadataKey 0-0 - groupId:string
group-value 17 StreamsGroupMetadataValue 0-0 0 epoch:int32 metadataHash:int64 validatedTopologyEpoch:int32#0=-1 lastAssignmentConfigs:[]?0#1{ \
    key:string value:string } storedDescriptionTopologyEpoch:int32#2=-1 failedDescriptionTopologyEpoch:int32#3=-1
group-key 19 StreamsGroupMemberMetadataKey 0-0 - groupId:string memberId:string
group-value 19 StreamsGroupMemberMetadataValue 0-0 0 instanceId:string?0 rackId:string?0 clientId:string clientHost:string \
    rebalanceTimeoutMs:int32=-1 topologyEpoch:int32 processId:string userEndpoint:?0=null{ host:string port:uint16 } clientTags:[]{ key:string \
    value:string }
group-key 20 StreamsGroupTargetAssignmentMetadataKey 0-0 - groupId:string
group-value 20 StreamsGroupTargetAssignmentMetadataValue 0-0 0 assignmentEpoch:int32 assignmentTimestamp:int64#0
group-key 21 StreamsGroupTargetAssignmentMemberKey 0-0 - groupId:string memberId:string
group-value 21 StreamsGroupTargetAssignmentMemberValue 0-0 0 activeTasks:[]{ subtopologyId:string partitions:[]int32 } standbyTasks:[]{ \
    subtopologyId:string partitions:[]int32 } warmupTasks:[]{ subtopologyId:string partitions:[]int32 }
group-key 22 StreamsGroupCurrentMemberAssignmentKey 0-0 - groupId:string memberId:string
group-value 22 StreamsGroupCurrentMemberAssignmentValue 0-0 0 memberEpoch:int32 previousMemberEpoch:int32 state:int8 activeTasks:[]{ \
    subtopologyId:string partitions:[]int32 assignmentEpochs:[]int32?0#0 } standbyTasks:[]{ subtopologyId:string partitions:[]int32 \
    assignmentEpochs:[]int32?0#0 } warmupTasks:[]{ subtopologyId:string partitions:[]int32 assignmentEpochs:[]int32?0#0 } \
    activeTasksPendingRevocation:[]{ subtopologyId:string partitions:[]int32 assignmentEpochs:[]int32?0#0 } standbyTasksPendingRevocation:[]{ \
    subtopologyId:string partitions:[]int32 assignmentEpochs:[]int32?0#0 } warmupTasksPendingRevocation:[]{ subtopologyId:string partitions:[]int32 \
    assignmentEpochs:[]int32?0#0 }
group-key 23 StreamsGroupTopologyKey 0-0 - groupId:string
group-value 23 StreamsGroupTopologyValue 0-0 0 epoch:int32 subtopologies:[]{ subtopologyId:string sourceTopics:[]string sourceTopicRegex:[]string \
    stateChangelogTopics:[]{ name:string partitions:int32 replicationFactor:int16 topicConfigs:[]{ key:string value:string } } \
    repartitionSinkTopics:[]string repartitionSourceTopics:[]{ name:string partitions:int32 replicationFactor:int16 topicConfigs:[]{ key:string \
    value:string } } copartitionGroups:[]{ sourceTopics:[]int16 sourceTopicRegex:[]int16 repartitionSourceTopics:[]int16 } }
txn-key 0 TransactionLogKey 0-0 - transactionalId:string
txn-value 0 TransactionLogValue 0-1 1 producerId:int64 previousProducerId:int64#0=-1 nextProducerId:int64#1=-1 producerEpoch:int16 \
    nextProducerEpoch:int16#3=-1 transactionTimeoutMs:int32 transactionStatus:int8 transactionPartitions:[]?0{ topic:string partitionIds:[]int32 } \
    transactionLastUpdateTimestampMs:int64 transactionStartTimestampMs:int64 clientTransactionVersion:int16#2
share-key 0 ShareSnapshotKey 0-0 - groupId:string topicId:uuid partition:int32
share-value 0 ShareSnapshotValue 0-0 0 snapshotEpoch:int32 stateEpoch:int32 leaderEpoch:int32 startOffset:int64 deliveryCompleteCount:int32#0=-1 \
    createTimestamp:int64 writeTimestamp:int64 stateBatches:[]{ firstOffset:int64 lastOffset:int64 deliveryState:int8 deliveryCount:int16 }
share-key 1 ShareUpdateKey 0-0 - groupId:string topicId:uuid partition:int32
share-value 1 ShareUpdateValue 0-0 0 snapshotEpoch:int32 leaderEpoch:int32 startOffset:int64 deliveryCompleteCount:int32#0=-1 stateBatches:[]{ \
    firstOffset:int64 lastOffset:int64 deliveryState:int8 deliveryCount:int16 }
metadata 0 RegisterBrokerRecord 0-4 0 brokerId:int32 isMigratingZkBroker:bool@2- incarnationId:uuid brokerEpoch:int64 endPoints:[]{ name:string \
    host:string port:uint16 securityProtocol:int16 } features:[]{ name:string minSupportedVersion:int16 maxSupportedVersion:int16 } rack:string?0 \
    fenced:bool=true inControlledShutdown:bool@1- logDirs:[]uuid@3-#0 cordonedLogDirs:[]uuid@4-?4#1=null
metadata 1 UnregisterBrokerRecord 0-0 0 brokerId:int32 brokerEpoch:int64
metadata 2 TopicRecord 0-0 0 name:string topicId:uuid
metadata 3 PartitionRecord 0-2 0 partitionId:int32=-1 topicId:uuid replicas:[]int32 isr:[]int32 removingReplicas:[]int32 addingReplicas:[]int32 \
    leader:int32=-1 leaderRecoveryState:int8#0 leaderEpoch:int32=-1 partitionEpoch:int32=-1 directories:[]uuid@1- \
    eligibleLeaderReplicas:[]int32@2-?2#1=null lastKnownElr:[]int32@2-?2#2=null
metadata 4 ConfigRecord 0-0 0 resourceType:int8 resourceName:string name:string value:string?0
metadata 5 PartitionChangeRecord 0-2 0 partitionId:int32=-1 topicId:uuid isr:[]int32?0#0=null leader:int32#1=-2 replicas:[]int32?0#2=null \
    removingReplicas:[]int32?0#3=null addingReplicas:[]int32?0#4=null leaderRecoveryState:int8#5=-1 directories:[]uuid@1-?1#8=null \
    eligibleLeaderReplicas:[]int32@2-?2#6=null lastKnownElr:[]int32@2-?2#7=null
metadata 7 FenceBrokerRecord 0-0 0 id:int32 epoch:int64
metadata 8 UnfenceBrokerRecord 0-0 0 id:int32 epoch:int64
metadata 9 RemoveTopicRecord 0-0 0 topicId:uuid
metadata 10 DelegationTokenRecord 0-0 0 owner:string requester:string renewers:[]string issueTimestamp:int64 maxTimestamp:int64 \
    expirationTimestamp:int64 tokenId:string
metadata 11 UserScramCredentialRecord 0-0 0 name:string mechanism:int8 salt:bytes storedKey:bytes serverKey:bytes iterations:int32
metadata 12 FeatureLevelRecord 0-0 0 name:string featureLevel:int16
metadata 14 ClientQuotaRecord 0-0 0 entity:[]{ entityType:string entityName:string?0 } key:string value:float64 remove:bool
metadata 15 ProducerIdsRecord 0-0 0 brokerId:int32 brokerEpoch:int64=-1 nextProducerId:int64
metadata 17 BrokerRegistrationChangeRecord 0-3 0 brokerId:int32 brokerEpoch:int64 fenced:int8#0 inControlledShutdown:int8@1-#1 logDirs:[]uuid@2-#2 \
    cordonedLogDirs:[]uuid@3-?3#3=null
metadata 18 AccessControlEntryRecord 0-0 0 id:uuid resourceType:int8 resourceName:string patternType:int8 principal:string host:string operation:int8 \
    permissionType:int8
metadata 19 RemoveAccessControlEntryRecord 0-0 0 id:uuid
metadata 20 NoOpRecord 0-0 0
metadata 21 ZkMigrationStateRecord 0-0 0 zkMigrationState:int8
metadata 22 RemoveUserScramCredentialRecord 0-0 0 name:string mechanism:int8
metadata 23 BeginTransactionRecord 0-0 0 name:string?0#0=null
metadata 24 EndTransactionRecord 0-0 0
metadata 25 AbortTransactionRecord 0-0 0 reason:string?0#0=null
metadata 26 RemoveDelegationTokenRecord 0-0 0 tokenId:string
metadata 27 RegisterControllerRecord 0-0 0 controllerId:int32 incarnationId:uuid zkMigrationReady:bool endPoints:[]{ name:string host:string \
    port:uint16 securityProtocol:int16 } features:[]{ name:string minSupportedVersion:int16 maxSupportedVersion:int16 }
metadata 28 ClearElrRecord 0-0 0 topicName:string
metadata 29 UnregisterControllerRecord 0-0 0 controllerId:int32
client -1 ConsumerProtocolAssignment 0-3 - assignedPartitions:[]{ topic:string partitions:[]int32 } userData:bytes?0=null
client -1 ConsumerProtocolSubscription 0-3 - topics:[]string userData:bytes?0=null ownedPartitions:[]@1-{ topic:string@1- partitions:[]int32@1- } \
    generationId:int32@2-=-1 rackId:string@3-?3=null
control -1 KRaftVersionRecord 0-0 0 version:int16 kRaftVersion:int16
control -1 SnapshotFooterRecord 0-0 0 version:int16
control -1 SnapshotHeaderRecord 0-0 0 version:int16 lastContainedLogTimestamp:int64
control -1 VotersRecord 0-0 0 version:int16 voters:[]{ voterId:int32 voterDirectoryId:uuid endpoints:[]{ name:string host:string port:uint16 } \
    kRaftVersionFeature:{ minSupportedVersion:int16 maxSupportedVersion:int16 } }
control -1 LeaderChangeMessage 0-1 0 version:int16 leaderId:int32 voters:[]{ voterId:int32 voterDirectoryId:uuid@1- } grantingVoters:[]{ \
    voterId:int32 voterDirectoryId:uuid@1- }
`
