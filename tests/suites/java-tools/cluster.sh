# The cluster: its directories, features, quorum, APIs, elections, reassignments, ACLs, client metrics.

log_dirs() { k log-dirs --describe --topic-list "$T-c"; ok; has '"partition":"'"$T-c"'-0","size":[1-9][0-9]*,"offsetLag":0,"isFuture":false'; }
features() {
  k features describe; ok
  has 'metadata.version .*FinalizedVersionLevel: [0-9]'; has 'transaction.version .*FinalizedVersionLevel: 2'; has 'group.version .*FinalizedVersionLevel: 1'
  has 'share.version .*FinalizedVersionLevel: [12]'; has 'streams.version .*FinalizedVersionLevel: 1'
}
features_upgrade() { k features upgrade --feature transaction.version=2 --dry-run; has 'can be upgraded to 2|was upgraded|already|Could not upgrade'; }
quorum_status() { k metadata-quorum describe --status; ok; has '^LeaderId: +[0-9]+'; has '^HighWatermark: +[0-9]+'; has '^CurrentVoters: +\[.*"id": [0-9]+'; }
quorum_replication() { k metadata-quorum describe --replication; ok; has '^[0-9]+.*Leader'; }
cluster_id() {
  kt cluster cluster-id --bootstrap-server "$BOOTSTRAP"; ok; has '^Cluster ID: [A-Za-z0-9_-]{22}$'
  kt cluster list-endpoints --bootstrap-server "$BOOTSTRAP"; ok; has "^$NODE .*unfenced +broker"
}
broker_api_versions() {
  local a
  k broker-api-versions; ok
  for a in Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups \
    ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn \
    WriteTxnMarkers TxnOffsetCommit DescribeConfigs DescribeLogDirs CreatePartitions DeleteGroups IncrementalAlterConfigs OffsetDelete \
    DescribeCluster DescribeProducers DescribeTransactions ListTransactions DescribeTopicPartitions \
    ConsumerGroupHeartbeat ConsumerGroupDescribe ShareGroupHeartbeat ShareFetch ShareAcknowledge; do
    has "^.$a\([0-9]+\): [0-9]+( to [0-9]+)? \[usable: "
  done
}
leader_election() {
  k leader-election --election-type PREFERRED --topic "$T-c" --partition 0; ok
  has 'Valid replica already elected for partitions|Successfully completed leader election'
}
reassign() {
  echo "{\"version\":1,\"topics\":[{\"topic\":\"$T-c\"}]}" >"$OUT/move.json"
  k reassign-partitions --generate --topics-to-move-json-file "$OUT/move.json" --broker-list "$NODE"; ok; has "\"topic\":\"$T-c\",\"partition\":0,\"replicas\":\[$NODE\]"
  echo "{\"version\":1,\"partitions\":[{\"topic\":\"$T-c\",\"partition\":0,\"replicas\":[$NODE],\"log_dirs\":[\"any\"]}]}" >"$OUT/reassign.json"
  k reassign-partitions --execute --reassignment-json-file "$OUT/reassign.json"; ok; has 'Successfully started'
  until_has 20 'is complete' reassign-partitions --verify --reassignment-json-file "$OUT/reassign.json"
  k reassign-partitions --list; ok; has 'No partition reassignments found'
}
acls() { k acls --list; has 'No Authorizer is configured|Current ACLs|^$'; }
client_metrics() {
  k client-metrics --alter --name "$T-m" --interval 5000 --metrics org.apache.kafka.producer. --match 'client_id=jt.*'; ok
  until_has 10 "$T-m" client-metrics --list
  k client-metrics --describe --name "$T-m"; has interval.ms=5000
  k client-metrics --delete --name "$T-m"; ok; sleep 0.5
  k client-metrics --list; hasnt "$T-m"
}
