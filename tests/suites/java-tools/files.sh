# A broker's files, read by the tool that dumps them: logs, indexes, and what coordinators have written.

dump_log() {
  create "$T-f" 1 --config segment.bytes=1048576
  seq -f 'v%g' 30 >"$OUT/in"; produce "$T-f" --compression-codec lz4
  k producer-perf-test --topic "$T-f" --num-records 30000 --throughput -1 --record-size 100 --transactional-id "$T-ftx" --transaction-duration-ms 100; ok
  files "$T-f" .log; kt dump-log --files "$FILES" --print-data-log; ok
  lines '^Dumping .*\.log$' 4; has '^baseOffset: 0 .*count: .* compresscodec: lz4 .*isvalid: true'; lines '^. offset: .* payload: v[0-9]+$' 30
  has '^baseOffset: .*isTransactional: true isControl: true .*isvalid: true'; has 'endTxnMarker: COMMIT coordinatorEpoch: [0-9]+$'
  lines '^. offset: .* valueSize: 100 .* payload: [A-Z]{100}$' 30000; hasnt 'isvalid: false|bytes of valid|Exception'
}
dump_index() { # of a segment that takes no more: Kafka's others are filled up with zeros
  local f
  for f in index timeindex; do
    files "$T-f" .$f; FILES=${FILES%%,*}
    kt dump-log --files "$FILES" --index-sanity-check; ok; has "$f passed sanity check"
    kt dump-log --files "$FILES"; ok; hasnt 'Mismatches|mismatch|out of order|not found|Exception'
    case $f in index) has '^offset: [0-9]+ position: [0-9]+$';; *) has '^timestamp: [0-9]{13} offset: [0-9]+$';; esac
  done
}
dump_aborted() { files "$T-t" .txnindex; kt dump-log --files "$FILES"; ok; has '^version: 0 producerId: [0-9]+ firstOffset: 0 lastOffset: [1-9][0-9]* lastStableOffset: [1-9][0-9]*$'; }
dump_offsets() {
  SHOW=1 all_of "$T-f" --group "$T-fg" --max-messages 8; ok
  files __consumer_offsets .log; kt dump-log --files "$FILES" --offsets-decoder; ok
  has "key: .\"type\":\"1\",\"data\":."'"group":"'"$T-fg"'","topic":"'"$T-f"'","partition":0.*payload: ."version":"4","data":."offset":8,'
  has "key: .\"type\":\"2\",\"data\":."'"group":"'"$T-fg"'".*"protocolType":"consumer","generation":1,"protocol":"range".*"subscription":."topics":."'"$T-f"'"'
}
dump_transactions() {
  local s
  files __transaction_state .log; kt dump-log --files "$FILES" --transaction-log-decoder; ok
  for s in Empty Ongoing PrepareCommit CompleteCommit; do has "key: .\"type\":\"0\",\"data\":."'"transactionalId":"'"$T-ftx"'".*"transactionStatus":"'$s'"'; done
}
