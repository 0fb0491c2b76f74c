# Kafka Connect 4.4, two distributed workers with an exactly-once source: killed in turn, reconfigured in flight; all is written once and in order (3 min)
kafka_jars
compile "$KAFKA_JARS" "$DIR"/*.java
broker main num.partitions=4
seconds=40 id=ce-$RUN count=6000 kills=0 workers=()
cat >worker.properties <<CONF
bootstrap.servers=$BOOTSTRAP
group.id=$id
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=$id-configs
offset.storage.topic=$id-offsets
status.storage.topic=$id-status
config.storage.replication.factor=-1
offset.storage.replication.factor=-1
status.storage.replication.factor=-1
offset.storage.partitions=3
status.storage.partitions=2
exactly.once.source.support=enabled
listeners=http://127.0.0.1:0
plugin.discovery=service_load
session.timeout.ms=8000
heartbeat.interval.ms=1000
rebalance.timeout.ms=15000
scheduled.rebalance.max.delay.ms=1000
offset.flush.interval.ms=1000
CONF
worker() { # the check finds its address in its log
  spawn "$OUT/worker$1-$kills" java -Xmx384M -XX:+UseSerialGC $LOG4J -Dlog.level=info -cp "$CP:$DIR" org.apache.kafka.connect.cli.ConnectDistributed "$OUT/worker.properties"
  workers[$1]=$SPAWNED
}
program() { java -Xmx256M $JAVA_FLAGS $LOG4J -cp "$CP" oncelog.suite.ConnectCheck "$@"; }
put() { # STEP ROUND
  program put "$OUT" "$id" "$count" "$2" 2>"$OUT/$1" && { record PASS "$1"; return; }
  record FAIL "$1"; tail -3 "$OUT/$1" >&2; return 1
}

program prepare "$BOOTSTRAP" "$id" 2>"$OUT/prepare"; worker 0; worker 1
if put connector_created 1; then
  end=$((SECONDS + seconds))
  while [ $SECONDS -lt $end ]; do
    sleep 10; v=$((kills % 2)); reap "${workers[$v]}" KILL; kills=$((kills + 1)); sleep 1; worker "$v"
    [ $kills != 2 ] || put connector_reconfigured 2
  done
  program check "$BOOTSTRAP" "$OUT" "$id" "$count" 240 2>"$OUT/check" | collect "" "$OUT/check.log"
  [ $kills -ge 2 ] && record PASS workers_killed || record FAIL workers_killed
fi
for p in "${workers[@]}"; do reap "$p" TERM; done
