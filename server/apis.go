package server

import "github.com/twmb/franz-go/pkg/kmsg"

// The accesses that rows of the API table ask for.
var (
	needNothing        = need{}
	needTopicRead      = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationRead}
	needTopicWrite     = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationWrite}
	needTopicDescribe  = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationDescribe}
	needTopicDelete    = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationDelete}
	needTopicAlter     = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationAlter}
	needGroupRead      = need{kmsg.ACLResourceTypeGroup, kmsg.ACLOperationRead}
	needGroupDescribe  = need{kmsg.ACLResourceTypeGroup, kmsg.ACLOperationDescribe}
	needGroupDelete    = need{kmsg.ACLResourceTypeGroup, kmsg.ACLOperationDelete}
	needTxnWrite       = need{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLOperationWrite}
	needTxnDescribe    = need{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLOperationDescribe}
	needClusterCreate  = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationCreate}
	needClusterSee     = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationDescribe}
	needClusterAlter   = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationAlter}
	needClusterConfigs = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationDescribeConfigs}
	needAlterQuotas    = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationAlterConfigs}
	needTokenDescribe  = need{kmsg.ACLResourceTypeDelegationToken, kmsg.ACLOperationDescribe}
	needClusterAction  = need{kmsg.ACLResourceTypeCluster, kmsg.ACLOperationClusterAction}
	needDescribeConfig = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationDescribeConfigs}
	needAlterConfig    = need{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationAlterConfigs}
)

// unlisted is the advertised version of an API that ApiVersions lists only while client metrics are wanted.
const unlisted = -1

// apis is the server: one row per API, ascending. ApiVersions, dispatch and
// request metrics come from it.
var apis = []api{
	{0, 3, 13, 0, needTopicWrite, (*Server).handleProduce, quick},
	{1, 4, 18, 4, needTopicRead, (*Server).handleFetch, quick},
	{2, 1, 11, 1, needTopicDescribe, (*Server).handleListOffsets, quick},
	{3, 0, 13, 0, needTopicDescribe, (*Server).handleMetadata, quick},
	{8, 2, 10, 2, needGroupRead, (*Server).handleOffsetCommit, quick},
	{9, 1, 10, 1, needGroupDescribe, (*Server).handleOffsetFetch, quick},
	{10, 0, 6, 0, needGroupDescribe, (*Server).handleFindCoordinator, slow},
	{11, 0, 9, 0, needGroupRead, (*Server).handleJoinGroup, slow},
	{12, 0, 4, 0, needGroupRead, (*Server).handleHeartbeat, quick},
	{13, 0, 5, 0, needGroupRead, (*Server).handleLeaveGroup, slow},
	{14, 0, 5, 0, needGroupRead, (*Server).handleSyncGroup, slow},
	{15, 0, 6, 0, needGroupDescribe, (*Server).handleDescribeGroups, slow},
	{16, 0, 5, 0, needGroupDescribe, (*Server).handleListGroups, slow},
	{17, 0, 1, 0, needNothing, (*Server).handleSASLHandshake, quick},
	{18, 0, 5, 0, needNothing, (*Server).handleApiVersions, quick},
	{19, 2, 7, 2, needClusterCreate, (*Server).handleCreateTopics, slow},
	{20, 1, 6, 1, needTopicDelete, (*Server).handleDeleteTopics, slow},
	{21, 0, 2, 0, needTopicDelete, (*Server).handleDeleteRecords, slow},
	{22, 0, 5, 0, needTxnWrite, (*Server).handleInitProducerID, slow},
	{23, 2, 4, 2, needTopicDescribe, (*Server).handleOffsetForLeaderEpoch, quick},
	{24, 0, 5, 0, needTxnWrite, (*Server).handleAddPartitionsToTxn, slow},
	{25, 0, 4, 0, needTxnWrite, (*Server).handleAddOffsetsToTxn, slow},
	{26, 0, 5, 0, needTxnWrite, (*Server).handleEndTxn, slow},
	{27, 1, 2, 1, needClusterAction, (*Server).handleWriteTxnMarkers, slow},
	{28, 0, 6, 0, needTxnWrite, (*Server).handleTxnOffsetCommit, slow},
	{29, 1, 3, 1, needClusterSee, (*Server).handleDescribeACLs, quick},
	{30, 1, 3, 1, needClusterAlter, (*Server).handleCreateACLs, quick},
	{31, 1, 3, 1, needClusterAlter, (*Server).handleDeleteACLs, quick},
	{32, 1, 4, 1, needDescribeConfig, (*Server).handleDescribeConfigs, slow},
	{33, 0, 2, 0, needAlterConfig, (*Server).handleAlterConfigs, slow},
	{34, 1, 2, 1, needClusterAlter, (*Server).handleAlterReplicaLogDirs, slow},
	{35, 1, 5, 1, needClusterSee, (*Server).handleDescribeLogDirs, slow},
	{36, 0, 2, 0, needNothing, (*Server).handleSASLAuthenticate, quick},
	{37, 0, 3, 0, needTopicAlter, (*Server).handleCreatePartitions, slow},
	{38, 1, 3, 1, needNothing, (*Server).handleCreateDelegationToken, quick},
	{39, 1, 2, 1, needNothing, (*Server).handleRenewDelegationToken, quick},
	{40, 1, 2, 1, needNothing, (*Server).handleExpireDelegationToken, quick},
	{41, 1, 3, 1, needTokenDescribe, (*Server).handleDescribeDelegationToken, quick},
	{42, 0, 3, 0, needGroupDelete, (*Server).handleDeleteGroups, slow},
	{43, 0, 2, 0, needClusterAlter, (*Server).handleElectLeaders, slow},
	{44, 0, 1, 0, needAlterConfig, (*Server).handleIncrementalAlterConfigs, slow},
	{45, 0, 1, 0, needClusterAlter, (*Server).handleAlterPartitionReassignments, slow},
	{46, 0, 0, 0, needClusterSee, (*Server).handleListPartitionReassignments, quick},
	{47, 0, 0, 0, needGroupDelete, (*Server).handleOffsetDelete, slow},
	{48, 0, 1, 0, needClusterConfigs, (*Server).handleDescribeClientQuotas, quick},
	{49, 0, 1, 0, needAlterQuotas, (*Server).handleAlterClientQuotas, slow},
	{50, 0, 0, 0, needClusterSee, (*Server).handleDescribeUserSCRAMCredentials, quick},
	{51, 0, 0, 0, needClusterAlter, (*Server).handleAlterUserSCRAMCredentials, slow},
	{55, 0, 2, 0, needClusterSee, (*Server).handleDescribeQuorum, quick},
	{57, 0, 2, 0, needClusterAlter, (*Server).handleUpdateFeatures, slow},
	{60, 0, 2, 0, needClusterSee, (*Server).handleDescribeCluster, slow},
	{61, 0, 0, 0, needTopicRead, (*Server).handleDescribeProducers, slow},
	{64, 0, 0, 0, needClusterAlter, (*Server).handleUnregisterBroker, slow},
	{65, 0, 0, 0, needTxnDescribe, (*Server).handleDescribeTransactions, slow},
	{66, 0, 2, 0, needTxnDescribe, (*Server).handleListTransactions, slow},
	{71, 0, 0, unlisted, needNothing, (*Server).handleGetTelemetrySubscriptions, quick},
	{72, 0, 0, unlisted, needNothing, (*Server).handlePushTelemetry, slow},
	{74, 0, 1, 0, needClusterConfigs, (*Server).handleListConfigResources, quick},
	{75, 0, 0, 0, needTopicDescribe, (*Server).handleDescribeTopicPartitions, slow},
}

// controllerAPIs are those that a controller's listener serves: what there is to ask and to change of the cluster, as in Kafka, whose
// tools ask for it with --bootstrap-controller. What controllers and brokers say to each other there is not served.
var controllerAPIs = map[int16]bool{
	17: true, 18: true, 19: true, 20: true, 29: true, 30: true, 31: true, 32: true, 33: true, 36: true, 37: true, 38: true, 39: true,
	40: true, 41: true, 43: true, 44: true, 45: true, 46: true, 49: true, 50: true, 51: true, 55: true, 57: true, 60: true, 64: true,
}

// api gives the row of an API key, or nil if it is not served on the listener.
func (l *listener) api(key int16) *api {
	if l.controller && !controllerAPIs[key] {
		return nil
	}
	return apiOf(key)
}

// apiOf gives the row of an API key, or nil.
func apiOf(key int16) *api {
	if key < 0 || int(key) >= len(apiByKey) {
		return nil
	}
	return apiByKey[key]
}

// apiByKey is apis by key, with nil for what is not served.
var apiByKey []*api

// The table names the handlers, and handlers (ApiVersions) read the table, so
// it is indexed when all of it exists.
func init() {
	apiByKey = make([]*api, apis[len(apis)-1].key+1)
	for i := range apis {
		apiByKey[apis[i].key] = &apis[i]
	}
}
