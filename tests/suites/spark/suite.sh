# Spark 4.2.0 structured streaming: a query copies a topic, read_committed, is killed twice and goes on from its checkpoint; batch reads (4 min)
# Spark's sink writes at least once, so repeats are counted and not refused; nothing may be missing, and nothing aborted be seen.
need java javac mvn
java_classes
broker main num.partitions=4
seconds=40 id=sp-$RUN stops=0 program=(java -Xmx1G -XX:+UseSerialGC)
for p in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent java.util.concurrent.atomic jdk.internal.ref \
  sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do program+=(--add-opens "java.base/$p=ALL-UNNAMED"); done
program+=(-Djava.io.tmpdir="$OUT" -Dlog4j2.configurationFile="$DIR/log4j2.properties" -Djdk.reflect.useDirectMethodHandle=false -cp "$CP" SparkCopy)
app() { spawn "$OUT/app$stops" "${program[@]}" app "$BOOTSTRAP" "$id" "$OUT/checkpoint"; app=$SPAWNED; }

if "${program[@]}" prepare "$BOOTSTRAP" "$id" 2>"$OUT/prepare"; then
  app
  "${program[@]}" check "$BOOTSTRAP" "$id" "$seconds" 240 "$OUT/stopped" >"$OUT/check" 2>"$OUT/check.err" & checker=$!
  echo "$checker" >>"$OUT/processes"
  while kill -0 "$checker" 2>/dev/null; do
    sleep 0.5
    # Killed once it has committed three batches since it started.
    [ $stops -lt 2 ] && [ "$(find "$OUT/checkpoint/commits" -type f -name '[0-9]*' 2>/dev/null | wc -l)" -ge $((stops * 3 + 3)) ] || continue
    reap "$app" KILL; stops=$((stops + 1)); app
    [ $stops -lt 2 ] || touch "$OUT/stopped"
  done
  grep '^fed' "$OUT/check.err" | sed 's/^/    | /' >&2
  collect "" "$OUT/check.log" <"$OUT/check"
  [ $stops -ge 2 ] && record PASS killed_and_restarted || record FAIL killed_and_restarted "$stops times"
  reap "$app" KILL
  "${program[@]}" batch "$BOOTSTRAP" "$id" 2>"$OUT/batch" | collect "" "$OUT/batch.log"
else
  record FAIL prepare; tail -3 "$OUT/prepare" >&2
fi
