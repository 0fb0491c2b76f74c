# Flink 2.2.1 with KafkaSink EXACTLY_ONCE: a job that fails every 8 s and is killed or cancelled in turn copies a topic exactly once (3 min a part)
# Its parts are the ways of naming transactional ids: incrementing, and pooling, which asks the broker for its open transactions.
need java javac mvn
java_classes
broker main num.partitions=4
seconds=40 program=(java -XX:+UseSerialGC)
for p in java.lang java.util java.util.concurrent java.net java.nio java.time sun.nio.ch; do program+=(--add-opens "java.base/$p=ALL-UNNAMED"); done
program+=("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn" -Dorg.slf4j.simpleLogger.showDateTime=true -cp "$CP" FlinkEos)

copy() { # PART
  local way=$1 id=fe-$RUN-$1 stops=0 checker app next
  "${program[@]}" prepare "$BOOTSTRAP" "$id" 2>"$OUT/$way-prepare" || { record FAIL "$way/prepare"; return; }
  spawn "$OUT/$way-app0" "${program[@]}" app "$BOOTSTRAP" "$id" "$OUT/$way" "$way"; app=$SPAWNED
  "${program[@]}" check "$BOOTSTRAP" "$id" "$seconds" 240 >"$OUT/$way-check" 2>"$OUT/$way-check.err" & checker=$!
  echo "$checker" >>"$OUT/processes"; next=$((SECONDS + 12))
  while kill -0 "$checker" 2>/dev/null; do
    sleep 0.5
    [ $SECONDS -ge $next ] && [ $stops -lt $((seconds / 10)) ] || continue
    if [ $((stops % 2)) = 0 ]; then reap "$app" KILL; else reap "$app" TERM; fi
    stops=$((stops + 1)) next=$((SECONDS + 12)); spawn "$OUT/$way-app$stops" "${program[@]}" app "$BOOTSTRAP" "$id" "$OUT/$way" "$way"; app=$SPAWNED
  done
  grep '^fed' "$OUT/$way-check.err" | sed 's/^/    | /' >&2
  collect "$way/" "$OUT/$way.log" <"$OUT/$way-check"
  [ $stops -ge 2 ] && record PASS "$way/stopped_and_restored" || record FAIL "$way/stopped_and_restored"
  reap "$app" TERM
}
for w in incrementing pooling; do ! part "$w" || copy "$w"; done
