# Programs that measure and verify: performance tools, verifiable clients, the compatibility test, the copier of transactions.

perf_producer() {
  create "$T-p" 2
  k producer-perf-test --topic "$T-p" --num-records 20000 --throughput -1 --record-size 200 --command-property acks=all; ok; has '^20000 records sent.*99.9th'
}
perf_producer_txn() {
  k producer-perf-test --topic "$T-p" --num-records 5000 --throughput -1 --record-size 200 --transactional-id "$T-perf" --transaction-duration-ms 100; ok; has '^5000 records sent'
}
perf_consumer() {
  k consumer-perf-test --topic "$T-p" --num-records 20000 --timeout 30000 --hide-header; ok
  awk -F', ' 'NF > 5 && $5 >= 20000 { found = 1 } END { exit !found }' <<<"$out"
}
perf_share() {
  share_from_earliest "$T-sp"
  k share-consumer-perf-test --topic "$T-p" --num-records 5000 --group "$T-sp" --timeout 30000 --hide-header; ok
  awk -F', ' '{ for (i = 1; i <= NF; i++) if ($i + 0 >= 5000) found = 1 } END { exit !found }' <<<"$out"
}
e2e_latency() { create "$T-e" 1; kt e2e-latency "$BOOTSTRAP" "$T-e" 200 all 100; ok; has 'Avg latency: [0-9.]+ ms'; has 'Percentiles: 50th = [0-9]+'; }

share_console() { share_from_earliest "$T-sh"; k console-share-consumer --topic "$T-c" --group "$T-sh" --max-messages 20 --timeout-ms 60000; ok; lines '^v[0-9]+$' 20; }
share_reject() { share_from_earliest "$T-sr"; k console-share-consumer --topic "$T-c" --group "$T-sr" --max-messages 20 --timeout-ms 60000 --reject; ok; lines '^v[0-9]+$' 20; }
share_groups() {
  until_has 15 "^$T-sh$" share-groups --list
  k share-groups --describe --group "$T-sh"; ok; has "$T-sh +$T-c +0"
  k share-groups --describe --group "$T-sh" --state; has Empty
  k groups --list --share; has "$T-sh +Share"
  k share-groups --reset-offsets --to-earliest --group "$T-sh" --topic "$T-c" --execute; ok; has "$T-c +0 +0"
  k share-groups --delete-offsets --group "$T-sh" --topic "$T-c"; ok
  k share-groups --delete --group "$T-sh"; ok; has successful
}

verify_producer() {
  create "$T-v" 2
  SHOW=3 k verifiable-producer --topic "$T-v" --max-messages 1000 --throughput -1 --acks -1; ok
  lines '"name":"producer_send_success"' 1000; has '"name":"tool_data".*"sent":1000,"acked":1000'
}
verify_consumer() {
  SHOW=3 k verifiable-consumer --topic "$T-v" --group-id "$T-vc" --max-messages 1000; ok
  has '"name":"partitions_assigned"'; has '"name":"offsets_committed".*"success":true'
  [ "$(grep -oE '"records_consumed","count":[0-9]+' <<<"$out" | awk -F: '{ n += $2 } END { print n }')" = 1000 ]
}
verify_consumer_848() {
  SHOW=3 k verifiable-consumer --topic "$T-v" --group-id "$T-vc848" --group-protocol consumer --max-messages 1000; ok
  has '"name":"partitions_assigned"'; has '"success":true'
}
verify_share() {
  SHOW=3 k verifiable-share-consumer --topic "$T-v" --group-id "$T-vs" --max-messages 1000 --offset-reset-strategy earliest; ok
  has '"name":"offsets_acknowledged"'; has '"success":true'
}
compatibility() {
  create "$T-k" 1
  k topics --delete --if-exists --topic newtopic; sleep 1 # the program creates it
  kt client-compatibility-test --bootstrap-server "$BOOTSTRAP" --topic "$T-k" --offsets-for-times-supported true --cluster-id-supported true \
    --expect-record-too-large-exception false --num-cluster-nodes "$NODES" --create-topics-supported true --describe-acls-supported true \
    --describe-configs-supported true --idempotent-producer-supported true; ok
}

# The copier moves a topic in transactions and aborts some at random. Killed three times in mid-flight, it leaves an exact copy.
copier() {
  local i j p copy=(transactional-message-copier --broker-list "$BOOTSTRAP" --input-topic "$T-in" --input-partition 0 --output-topic "$T-out" --transaction-size 200
    --transaction-timeout 10000 --transactional-id "$T-copy" --consumer-group "$T-copy" --enable-random-aborts --group-mode --use-group-metadata)
  create "$T-in" 1; create "$T-out" 1; seq -f 'm%05g' 20000 >"$OUT/in"; produce "$T-in"
  for i in 1 2 3; do
    spawn "$OUT/copy$i" "$SUITES/kafka/tool" "${copy[@]}"; p=$SPAWNED
    for j in $(seq 300); do
      [ "$(grep -c '"totalProcessed":[1-9]' "$OUT/copy$i")" -le $((i * 2)) ] && kill -0 "$p" 2>/dev/null || break
      sleep 0.1
    done
    reap "$p" KILL; tail -1 "$OUT/copy$i"
  done
  SHOW=2 LIMIT=120 kt "${copy[@]}"; echo "$out" | tail -2; ok; has '"remaining":0'
  SHOW=2 all_of "$T-out" --isolation-level read_committed --max-messages 20000; ok
  grep -E '^m[0-9]{5}$' <<<"$out" >"$OUT/copied"; cmp "$OUT/in" "$OUT/copied"
  SHOW=2 k console-consumer --topic "$T-out" --from-beginning --isolation-level read_committed --timeout-ms 15000; lines '^m[0-9]{5}$' 20000
}

topics_cleanup() {
  local i
  k topics --delete --topic "$T-.*"; ok
  for i in $(seq 20); do k topics --list; grep -q "^$T-" <<<"$out" || break; sleep 0.5; done
  hasnt "^$T-"
}
