# A program over Kafka's Java clients 4.4.0, 3.9.1 and 2.8.2: producer, consumer, groups, transactions, admin (3 min a version)
# Its parts are the versions.
need java javac mvn
broker main num.partitions=4
for v in 4.4.0 3.9.1 2.8.2; do
  part "$v" || continue
  FILES=("$DIR"/{Suite,Basic,Groups,Transactions,Administration}.java)
  case $v in 2.*) ;; 3.*) FILES+=("$DIR/Since3.java");; *) FILES+=("$DIR"/{Since3,Since4}.java);; esac
  java_classes "-Dkafka.version=$v"
  java -Xmx512M $JAVA_FLAGS -cp "$CP" Suite "$BOOTSTRAP" "$RUN-${v//./}" "$ONLY" 2>&1 | collect "$v/" "$OUT/$v.log"
done
