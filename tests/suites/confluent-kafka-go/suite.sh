# Go, confluent-kafka-go v2.11.1 (its librdkafka through cgo): its integration tests (3 min; builds 3 to 15 min once)
# A process for each test and each case of its TestIntegration. SASL=address of a listener with PLAIN, user adminplain, password
# admin-secret, adds some cases.
need go cc
compile_ckg() {
  local from package=github.com/confluentinc/confluent-kafka-go/v2/kafka
  go mod init suite
  go get -t "$package@$1"
  cp -r "$(go list -f '{{.Module.Dir}}' $package)" src; chmod -R u+w src
  go mod edit -replace "${package%/kafka}=./src"
  # Flush(-1) does not wait at all, and reports what a quick broker leaves no time to deliver.
  from=src/kafka; sed -i 's/producer.Flush(-1)/producer.Flush(10000)/' $from/txn_integration_test.go
  CGO_ENABLED=1 go test -mod=mod -c -o ckg.test $package
  # The cases, the one of ACLs last, as it leaves some when it fails; and the other tests that open the configuration of a broker.
  grep -hoE '^func \(its \*IntegrationTestSuite\) Test[A-Za-z0-9_]+' $from/*_test.go | sed 's/.* Test/Test/' | sort -u | awk '/ACL/ { last = last "\n" $0; next } 1; END { print last }' | grep . >cases
  awk '/^func Test/ { match($0, /Test[A-Za-z0-9_]*/); name = substr($0, RSTART, RLENGTH) } /^}/ { name = "" }
    name && /testconfRead\(|createAdminClient|createTestTopic\(/ { print name }' $from/*_test.go | grep -vx TestIntegration | sort -u >tests
}
build confluent-kafka-go compile_ckg v2.11.1
broker main auto.create.topics.enable=true num.partitions=4
cat >testconf.json <<JSON
{"Brokers": "$BOOTSTRAP", "BrokersSasl": "${SASL:-}", "SaslUsername": "adminplain", "SaslPassword": "admin-secret", "SaslMechanism": "PLAIN",
 "TopicName": "ckg-topic-$RUN", "GroupID": "ckg-group-$RUN", "PerfMsgCount": 20000, "PerfMsgSize": 100, "Config": ["api.version.request=true"]}
JSON
one() { # TEST FLAG...
  local t=$1; shift
  wanted "$t" || return 0
  tries "$OUT/$t.log" "$t" timeout 190 "$BUILD/ckg.test" -test.v -test.timeout 180s "$@"
  go_outcome "$OUT/$t.log" "(TestIntegration/)?$t" "$t"
}
while read -r t; do one "$t" -test.run '^TestIntegration$' -testify.m "^$t\$"; done <"$BUILD/cases"
while read -r t; do one "$t" -test.run "^$t\$"; done <"$BUILD/tests"
