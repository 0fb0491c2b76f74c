# Kafka Streams 4.4 with exactly_once_v2: three instances count a stream while they or the broker are killed; exact to the last record (2 min a part)
# Its parts: classic (the group protocol; an instance is killed every 10 s), broker (the broker is killed every 15 s and started again, on
# which nothing may be lost or counted twice) and streams (the protocol of KIP-1071).
kafka_jars
compile "$KAFKA_JARS" "$DIR/StreamsEos.java"
broker main num.partitions=4 group.streams.session.timeout.ms=6000 group.streams.min.session.timeout.ms=5000
seconds=60

# check_eos PART GROUP-PROTOCOL: three instances, the producer of their input, and something that dies again and again.
check_eos() {
  local part=$1 protocol=$2 id=se-$RUN-$1 i instances=() kills=0 checker every=10 next
  local app=(java -Xmx256M -XX:+UseSerialGC $LOG4J -cp "$CP" StreamsEos app "$BOOTSTRAP" "$id")
  java $JAVA_FLAGS $LOG4J -cp "$CP" StreamsEos prepare "$BOOTSTRAP" "$id" 2>"$OUT/$part-prepare" || { record FAIL "$part/prepare"; cat "$OUT/$part-prepare" >&2; return; }
  [ "$protocol" = classic ] || kafka configs --bootstrap-server "$BOOTSTRAP" --alter --entity-type groups --entity-name "$id" --add-config streams.session.timeout.ms=6000 >"$OUT/$part-session" 2>&1
  for i in 0 1 2; do spawn "$OUT/$part-app$i" "${app[@]}" "$OUT/state-$part$i" "$protocol"; instances[i]=$SPAWNED; done
  java -Xmx512M $JAVA_FLAGS $LOG4J -cp "$CP" StreamsEos check "$BOOTSTRAP" "$id" "$seconds" 240 >"$OUT/$part-check" 2>"$OUT/$part-check.err" & checker=$!
  echo "$checker" >>"$OUT/processes"
  [ "$part" != broker ] || every=15
  next=$((SECONDS + every))
  while kill -0 "$checker" 2>/dev/null; do
    sleep 0.5
    [ $SECONDS -ge $next ] && [ $kills -lt $((seconds / every)) ] || continue
    if [ "$part" = broker ]; then
      broker_kill main; sleep 1; broker_up main || { record FAIL broker/starts_again; return; }
    else
      i=$((kills % 3)); reap "${instances[$i]}" KILL; sleep 1
      spawn "$OUT/$part-app$i-$kills" "${app[@]}" "$OUT/state-$part$i" "$protocol"; instances[i]=$SPAWNED
    fi
    kills=$((kills + 1)) next=$((SECONDS + every))
  done
  grep -E '^(fed|read)' "$OUT/$part-check.err" | sed 's/^/    | /' >&2
  collect "$part/" "$OUT/$part.log" <"$OUT/$part-check"
  [ $kills -ge 1 ] && record PASS "$part/killed" || record FAIL "$part/killed" 'nothing was killed'
  for i in 0 1 2; do reap "${instances[$i]}" TERM; done
  kafka transactions --bootstrap-server "$BOOTSTRAP" list >"$OUT/$part-transactions" 2>&1
  ! grep "$id" "$OUT/$part-transactions" | grep Ongoing >"$OUT/$part-open" && record PASS "$part/no_open_transaction" || record FAIL "$part/no_open_transaction" "$(head -1 "$OUT/$part-open")"
}

! part classic || check_eos classic classic
if part broker; then
  if [ -n "${PID[main]:-}" ]; then check_eos broker classic; else say 'a given broker is not killed'; fi
fi
! part streams || check_eos streams streams
