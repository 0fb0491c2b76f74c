# Go, the tests that franz-go's kfake derived from Apache Kafka's own client tests, against a real broker (2 min)
# kfake.go.txt stands in for kfake's package, and gives the tests this broker instead of a fake one.
need go perl
timers=(group.consumer.min.heartbeat.interval.ms=100 group.consumer.heartbeat.interval.ms=100 group.consumer.min.session.timeout.ms=1000
  group.consumer.session.timeout.ms=3000 group.initial.rebalance.delay.ms=0)
compile_kfake() {
  local from
  go mod init suite
  mkdir kfake tests fetched
  cp "$DIR/kfake.go.txt" kfake/kfake.go
  from=$(cd fetched && go mod init fetched >&2 && go get "github.com/twmb/franz-go/pkg/kfake@$1" >&2 && go list -m -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kfake)
  cp "$from"/kafka_tests/*_test.go tests/; chmod u+w tests/*
  # The stand-in, with one broker; no hook tells when a real broker has got a fetch, so those tests wait.
  sed -i -e 's#"github.com/twmb/franz-go/pkg/kfake"#"suite/kfake"#' -e 's/Replicas = \[\]int32{0, 1, 2}/Replicas = []int32{1}/' tests/*.go
  perl -0pi -e 's/(func fetchGate\(.*?\) func\(\) \{\n).*?\n\}\n/$1\treturn func() { time.Sleep(2 * time.Second) }\n}\n/s' tests/helpers_test.go
  # Kafka answers CONCURRENT_TRANSACTIONS while it ends the old transaction, and wants a member id in every heartbeat.
  perl -0pi -e 's/(func fenceProducer\(.*?\n)(\tresp, err := req.RequestWith\(ctx, cl\)\n)/$1$2\tfor err == nil && resp.ErrorCode == 51 {\n\t\ttime.Sleep(20 * time.Millisecond)\n\t\tresp, err = req.RequestWith(ctx, cl)\n\t}\n/s' tests/admin_fence_test.go
  perl -pi -e 's/hbReq.MemberEpoch = 0$/hbReq.MemberID, hbReq.MemberEpoch = "another-member", 0/' tests/static_membership_test.go
  go get github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kmsg@v1.15.1 github.com/twmb/franz-go/pkg/kadm@v1.20.0
  go test -c -o kfake.test ./tests
}
build kfake compile_kfake v0.0.0-20260918054303-01f206a7e32c "$(cksum <"$DIR/kfake.go.txt")"

small='^TestGroupMaxSize(Classic|848)$'
go_test() { # BROKER LOG FLAG...
  KAFKA_SEEDS=${ADDRESS[$1]} "$BUILD/kfake.test" -test.v -test.parallel 1 -test.timeout 300s "${@:3}" >"$OUT/$2" 2>&1
  collect "" "$OUT/other" < <(go_results "$OUT/$2" | grep -E "^[A-Z]+ .*${ONLY:-}")
}
broker main "${timers[@]}"
go_test main tests.log -test.run "${ONLY:-.}" -test.skip "$small"
if broker small "${timers[@]}" group.max.size=1 group.consumer.max.size=1; then go_test small small.log -test.run "$small"; fi
