# Go, franz-go v1.22.3: the integration tests of its kgo package (2 min)
# Like all suites of Go clients it is compiled as a module of its own, from the public sources. KGO_TEST_RECORDS (50000) and the other
# variables of franz-go's tests work.
need go
tests='Issue325|ConsumeTopicRetrieval|ConsumeTopicRetrieval_Many|ConsumeRegex|ConsumeRegexShareSkipsInternal|848RegexBrokerResolves|Issue337|DirectPartitionPurge
Issue434|AddRemovePartitions|PauseIssue489|PauseIssueOct2023|Issue523|Issue648|Issue810|Issue865|IssueFetchLargerThanBrokerMaxReadBytes|Pooling|HookPollStart
ConsumeMaxDecompressBatchBytes|UnknownGroupOffsetFetchPinned|Ping|Issue1034|GroupSimple|GroupETL|Client_Produce|Issue769|IssueProduceBrokerTooOldFailsRecords
IssueProduceSyncManualPartitionNegativeDoesNotPanic|Issue831|Client_ProduceLargeMessages|TxnEtl|ShareGroup|ShareGroupETL|ShareGroupAckOnClose
ShareGroupOffsetsAdmin|SCRAMAuth|SCRAMAuthBadCredentials|OAuthAuth'
compile_kgo() {
  go mod init suite
  go get -t "github.com/twmb/franz-go@$1"
  printf 'package suite\n\nimport _ "github.com/twmb/franz-go/pkg/kgo"\n' >suite.go
  go mod tidy
  go test -c -o kgo.test github.com/twmb/franz-go/pkg/kgo
}
build kgo compile_kgo v1.22.3
broker main num.partitions=4
KGO_SEEDS=$BOOTSTRAP KGO_TEST_RF=1 KGO_TEST_RECORDS=${KGO_TEST_RECORDS:-50000} KGO_LOG_LEVEL=${KGO_LOG_LEVEL:-none} \
  "$BUILD/kgo.test" -test.v -test.timeout 550s -test.run "${ONLY:-^Test(${tests//$'\n'/|})\$}" >"$OUT/kgo.log" 2>&1
collect "" "$OUT/other" < <(go_results "$OUT/kgo.log")
