# Go, sarama v1.61.1: its functional tests, with connections cut by toxiproxy (6 min)
# A process for each test, as a panic would end the others. KAFKA_VERSION (4.2.0) is the protocol level that the client uses.
need go curl
compile_sarama() {
  go mod init suite
  go get -t "github.com/IBM/sarama@$1"
  cp -r "$(go list -m -f '{{.Dir}}' github.com/IBM/sarama)" src; chmod -R u+w src; cd src
  # Addresses come from the environment, topics have one replica, and the test topics are made once, not by each process.
  sed -i -e 's/ReplicationFactor: *3,/ReplicationFactor: 1,/' -e 's/:= prepareTestTopics(/:= suitePrepare(/' \
    -e 's/^\t\tenv.KafkaBrokerAddrs = append(env.KafkaBrokerAddrs, .*/\t\tenv.KafkaBrokerAddrs = []string{os.Getenv("SUITE_BROKER")}/' functional_test.go
  # This one wants an unknown topic to stay unknown, so it must not ask for its creation.
  sed -i '/^func TestFuncClientMetadata(/,/^}/s/^\tconfig.Metadata.Retry.Max = 1$/&\n\tconfig.Metadata.AllowAutoTopicCreation = false/' functional_client_test.go
  grep -q 'AllowAutoTopicCreation = false' functional_client_test.go
  cat >functional_suite_test.go <<'GO'
//go:build functional

package sarama

import (
	"context"
	"os"
)

func suitePrepare(ctx context.Context, env *testEnvironment) error {
	if os.Getenv("SUITE_PREPARE") == "" {
		return nil
	}
	return prepareTestTopics(ctx, env)
}
GO
  GOFLAGS=-mod=mod go test -tags functional -c -o ../sarama.test .
  GOBIN=$PWD/.. GOFLAGS=-mod=mod go install "github.com/Shopify/toxiproxy/v2/cmd/server@$2"
  mv ../server ../toxiproxy
}
build sarama compile_sarama v1.61.1 v2.5.0

# toxiproxy listens where the broker says it is, and hands on to where it really listens. The tests know five brokers, four are idle.
proxied=$(free_port) api=$(free_port)
if [ -n "$GIVEN" ]; then proxied=0; fi
broker main num.partitions=4 "advertised.listeners=PLAINTEXT://127.0.0.1:$proxied"
upstream=$BOOTSTRAP
[ -n "$GIVEN" ] || BOOTSTRAP=127.0.0.1:$proxied
for i in 1 2 3 4 5; do
  echo "{\"name\":\"kafka$i\",\"listen\":\"127.0.0.1:$([ $i = 1 ] && echo "$proxied" || echo 0)\",\"upstream\":\"$upstream\",\"enabled\":true}"
done | paste -sd, | sed 's/.*/[&]/' >"$OUT/toxiproxy.json"
spawn "$OUT/toxiproxy.log" "$BUILD/toxiproxy" -host 127.0.0.1 -port "$api" -config "$OUT/toxiproxy.json"
for i in $(seq 100); do ! curl -s -o /dev/null "http://127.0.0.1:$api/version" || break; sleep 0.1; done

# Some tests ask docker for logs of a broker, or to stop one; with one broker that proves nothing.
mkdir "$OUT/bin"; printf '#!/bin/sh\n[ "$2" = logs ]\n' >"$OUT/bin/docker"; chmod +x "$OUT/bin/docker"
export PATH=$OUT/bin:$PATH TOXIPROXY_ADDR=http://127.0.0.1:$api SUITE_BROKER=$BOOTSTRAP KAFKA_VERSION=${KAFKA_VERSION:-4.2.0}
cd "$BUILD/src"
SUITE_PREPARE=1 timeout 200 "$BUILD/sarama.test" -test.run '^$' >"$OUT/prepare.log" 2>&1 || die "could not make the test topics, see $OUT/prepare.log"
for t in $(grep -h '^func Test' functional*_test.go | sed 's/func \(Test[A-Za-z0-9_]*\).*/\1/' | grep -vx TestMain | grep -E "${ONLY:-.}"); do
  tries "$OUT/$t.log" "$t" timeout 130 "$BUILD/sarama.test" -test.v -test.timeout 120s -test.run "^$t\$"
  go_outcome "$OUT/$t.log" "$t"
done
