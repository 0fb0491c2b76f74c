# A transaction that its producer left open: listed, described, found, aborted, terminated.

txn_open() {
  create "$T-t" 1
  spawn "$OUT/txn" "$SUITES/kafka/tool" producer-perf-test --bootstrap-server "$BOOTSTRAP" --topic "$T-t" --num-records 100000 --throughput 20 --record-size 100 \
    --transactional-id "$T-tx" --transaction-duration-ms 600000 --command-property transaction.timeout.ms=800000 linger.ms=0
  echo "$SPAWNED" >"$OUT/txn.pid"
  until_has 30 "$T-tx[[:space:]]+.*Ongoing" transactions list
}
txn_describe() {
  k transactions describe --transactional-id "$T-tx"; ok; has "$T-tx.*Ongoing.*800000.*$T-t-0"
  k transactions list --transactional-id-pattern "$T-.*"; has "$T-tx"
  k transactions list --duration-filter 500000; hasnt "$T-tx"
}
txn_producers() {
  k transactions describe-producers --topic "$T-t" --partition 0; ok
  has '^[0-9]+[[:space:]]+[0-9]+[[:space:]]+-?[0-9]+[[:space:]]+[0-9]+[[:space:]]+[0-9]{13}[[:space:]]+0'
}
txn_lso() {
  reap "$(cat "$OUT/txn.pid")" KILL
  seq -f 'plain%g' 5 >"$OUT/in"; produce "$T-t"
  k console-consumer --topic "$T-t" --from-beginning --isolation-level read_committed --timeout-ms 8000; hasnt plain
  SHOW=3 k console-consumer --topic "$T-t" --from-beginning --timeout-ms 15000; has plain5
}
txn_find_hanging() { k transactions find-hanging --topic "$T-t" --partition 0; ok; hasnt "^$T-t"; k transactions find-hanging --broker-id "$NODE"; ok; }
txn_abort_wrong() { k transactions abort --topic "$T-t" --partition 0 --start-offset 1; fails; has 'Could not find any open transactions starting at offset 1'; }
txn_abort() {
  k transactions abort --topic "$T-t" --partition 0 --start-offset 0; ok
  all_of "$T-t" --isolation-level read_committed --max-messages 5; lines '^plain[1-5]$' 5
  k transactions describe-producers --topic "$T-t" --partition 0; has None
}
txn_terminate() {
  k transactions forceTerminateTransaction --transactionalId "$T-tx"; ok
  until_has 30 'CompleteAbort|Empty' transactions describe --transactional-id "$T-tx"; hasnt Ongoing
}
txn_describe_unknown() { k transactions describe --transactional-id "$T-nobody"; fails; has 'TransactionalIdNotFound|could not be found|unknown'; }
