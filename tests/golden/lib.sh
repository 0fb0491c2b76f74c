# What make and judge share: a real Apache Kafka, and the maker that fills it. The script that sources this has set here (its folder), port and address.
# KAFKA_LIBS is the folder of Kafka's jars. set is the set of the maker that is being worked on, and dir the folder of its broker.

work=$(mktemp -d); pid=
cleanup() { [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
(cd "$here" && go build -o "$work/maker" ./maker)

cat > "$work/log4j2.properties" <<CONF
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m%n
CONF
kafka() { java -Xmx512M -Dlog4j2.configurationFile="$work/log4j2.properties" -cp "$KAFKA_LIBS/*" "$@"; }

# settings KEY=VALUE...: the broker's, in $dir/server.properties.
settings() {
  mkdir -p "$dir"
  { cat <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
listeners=PLAINTEXT://$address,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$dir/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.initial.task.delay.ms=1000
log.retention.ms=-1
CONF
    [ $# -eq 0 ] || printf '%s\n' "$@"; } > "$dir/server.properties"
}
# up KEY=VALUE...: starts Kafka on the data that there is in $dir.
up() {
  settings "$@"
  [ -e "$dir/id" ] || kafka kafka.tools.StorageTool random-uuid 2>/dev/null | tail -1 > "$dir/id"
  kafka kafka.tools.StorageTool format --ignore-formatted -t "$(cat "$dir/id")" -c "$dir/server.properties" > "$dir/format.log" 2>&1
  : > "$dir/broker.log"
  java -Xmx1G -Dlog4j2.configurationFile="$work/log4j2.properties" -cp "$KAFKA_LIBS/*" kafka.Kafka "$dir/server.properties" > "$dir/broker.log" 2>&1 &
  pid=$!
  ready 'Kafka Server started'
}
# ready PATTERN: waits for a line of the broker's log.
ready() {
  until grep -q "$1" "$dir/broker.log"; do
    kill -0 "$pid" 2>/dev/null || { tail -20 "$dir/broker.log" >&2; exit 1; }
    read -rt 0.1 <> <(:) || true
  done
}
# down [SIGNAL]: stops it, cleanly unless told otherwise.
down() { kill "-${1:-TERM}" "$pid"; wait "$pid" || true; pid=; }
fill() { "$work/maker" fill "$set" "$1" "$address"; }
capture() { "$work/maker" capture "$address" "$dir/captured.json" "$@"; }
