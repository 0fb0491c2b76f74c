# Go, segmentio/kafka-go v0.4.51: its tests that talk to a broker (6 min)
# A process for each test. Many have deadlines of 10 s. Its transaction tests skip themselves from 3.0 on, so KAFKA_VERSION is 2.8.1.
# SASL=address of a listener with PLAIN, user adminplain, password admin-secret, adds two tests.
need go
compile_kafka_go() {
  local f
  go mod init suite
  go get -t "github.com/segmentio/kafka-go@$1"
  cp -r "$(go list -m -f '{{.Dir}}' github.com/segmentio/kafka-go)" src; chmod -R u+w src; cd src
  # localhost:9092 is written into the tests; here the address comes from the environment.
  for f in *_test.go; do
    case $f in address_test.go|example_*) continue;; esac
    sed -i -e 's/"localhost:9092"/suiteAddr/g' -e 's/"127\.0\.0\.1:9092"/suiteAddr/g' -e 's/"localhost:9093"/suiteSASL/g' -e 's/"127\.0\.0\.1:9093"/suiteSASL/g' \
      -e 's/"example\.com:9092"/"example.com:" + suitePortString/g' -e 's/Host: "localhost", Port: 9092/Host: suiteHost, Port: suitePort/g' \
      -e 's/Port != 9092/Port != suitePort/' -e 's/expected 9092 received/expected other port than/' -e 's/Host != "localhost"/Host != suiteHost/' \
      -e 's/TCP("localhost")/TCP(suiteAddr)/' "$f"
  done
  sed -i -e 's/^\tconst ($/\tvar (/' -e 's/^\tconst \([a-z]* = suiteAddr\)/\tvar \1/' conn_test.go reader_test.go
  sed -i -e 's/"example\.com": {"127\.0\.0\.1"}/"example.com": {suiteHost}/' -e 's/address:  "example\.com",/address:  "example.com:" + suitePortString,/' dialer_test.go
  sed -i -e 's/kafka\.TCP("localhost")/kafka.TCP(os.Getenv("SUITE_ADDR"))/' -e 's/^import (/import (\n\t"os"/' topics/list_topics_test.go
  # A quota is seen a moment after it is set; the test waits for versions that it knows of.
  sed -i 's/KafkaIsAtLeast("3.7.0")/KafkaIsAtLeast("2.7.0")/' alterclientquotas_test.go
  # As released this test makes a group without its connect function and time limit, and panics.
  sed -i 's/^\tconn, err := cg.coordinator()/\tcg.config.Timeout = 10 * time.Second\n\tcg.config.connect = makeConnect(cg.config)\n&/' reader_test.go
  cat >suite_test.go <<'GO'
package kafka

import (
	"net"
	"os"
	"strconv"
)

var (
	suiteAddr                     = os.Getenv("SUITE_ADDR")
	suiteSASL                     = os.Getenv("SUITE_SASL")
	suiteHost, suitePortString, _ = net.SplitHostPort(suiteAddr)
	suitePort, _                  = strconv.Atoi(suitePortString)
)
GO
  GOFLAGS=-mod=mod go test -c -o ../kafkago.test .
  GOFLAGS=-mod=mod go test -c -o ../topics.test ./topics
}
build kafka-go compile_kafka_go v0.4.51
broker main auto.create.topics.enable=true message.max.bytes=200000010
export SUITE_ADDR=$BOOTSTRAP SUITE_SASL=${SASL:-} KAFKA_VERSION=${KAFKA_VERSION:-2.8.1}

one() { # BINARY FOLDER TEST
  cd "$2" && tries "$OUT/$3.log" "$3" timeout 130 "$1" -test.v -test.timeout 120s -test.run "^$3\$"
  go_outcome "$OUT/$3.log" "$3"
}
# This client passes on what a broker answers while it makes its coordinators' topics, so they are made first.
(cd "$BUILD/src" && timeout 60 "$BUILD/kafkago.test" -test.run '^(TestClientFindCoordinator|TestClientInitProducerId)$') >"$OUT/warm-up.log" 2>&1
# Of the tests those whose file names the address, makes a client or a topic.
for t in $(grep -lE 'suiteAddr|suiteSASL|newLocalClient|newClient\(|makeTopic\(|createTopic\(|clientCreateTopic' "$BUILD"/src/*_test.go |
  xargs grep -hoE '^func Test[A-Za-z0-9_]+\(' | sed 's/func //;s/(//' | grep -vx TestMain | grep -E "${ONLY:-.}"); do
  case $t in TestUnsupportedSASLMechanism|TestWriterSasl) [ -n "$SUITE_SASL" ] || { record SKIP "$t" 'no SASL listener'; continue; };; esac
  one "$BUILD/kafkago.test" "$BUILD/src" "$t"
done
for t in $("$BUILD/topics.test" -test.list . | grep '^Test' | grep -E "${ONLY:-.}"); do one "$BUILD/topics.test" "$BUILD/src/topics" "$t"; done
