# Node: kafkajs 2.2.4, @platformatic/kafka 1.35.0, @confluentinc/kafka-javascript 1.10.1, each with the same steps (5 min)
# Its parts are kafkajs, platformatic and confluent. The last is built from source, which takes 4 to 10 minutes once.
need node npm
modules() { cp "$DIR/$1.json" package.json && npm install --no-audit --no-fund --loglevel=error; }
broker main num.partitions=4 log.retention.ms=-1 # some records are dated 2023
for c in kafkajs platformatic confluent; do
  part "$c" || continue
  if [ "$c" = confluent ]; then
    need c++ make python3 zlib.h openssl/ssl.h zstd.h sasl/sasl.h curl/curl.h
    export CKJS_LINKING=dynamic # against the system's libraries, nothing prebuilt
    build node-confluent modules confluent
  else
    build node modules package
  fi
  SUITE_MODULES=$BUILD node "$DIR/$c.mjs" "$BOOTSTRAP" "$RUN" "$ONLY" 2>"$OUT/$c.err" | collect "$c/" "$OUT/$c.log"
done
