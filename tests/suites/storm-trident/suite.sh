# Storm 2.8.2, Trident: transactional topologies count words with batches in parallel and strictly ordered commits, fail and are killed; exact (2 min)
# Its parts are the spouts, transactional and opaque. 60,000 records for each.
need java javac mvn
java_classes
broker main num.partitions=4
open=(); for p in java.lang java.lang.invoke java.util java.util.concurrent java.nio java.io java.net sun.nio.ch; do open+=(--add-opens "java.base/$p=ALL-UNNAMED"); done
for s in transactional opaque; do
  part "$s" || continue
  java -Xmx1G -XX:+UseSerialGC "${open[@]}" -Dlog4j2.configurationFile="$DIR/log4j2.properties" -Dstorm.log.dir="$OUT" -Djava.io.tmpdir="$OUT" -Djava.net.preferIPv4Stack=true \
    -cp "$CP" TridentCount "$BOOTSTRAP" "st-$RUN-$s" 60000 "$s" 2>"$OUT/$s.err" | collect "$s/" "$OUT/$s.log"
  grep -E '^(killed|fed)' "$OUT/$s.err" | sed 's/^/    | /' >&2
done
