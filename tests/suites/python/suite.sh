# Python: kafka-python 3.0.12, aiokafka 0.14.0, confluent-kafka 2.16.1, each with the same list of steps (4 min)
# Its parts are kafka_python, aio and confluent.
need python3
python3 -c 'import venv, ensurepip' 2>/dev/null || need python3-venv
environment() { python3 -m venv . && bin/pip install -q -r "$DIR/requirements.txt"; }
build python environment "$(cksum <"$DIR/requirements.txt")"
broker main num.partitions=4
for c in kafka_python aio confluent; do
  part "$c" || continue
  PYTHONDONTWRITEBYTECODE=1 "$BUILD/bin/python" "$DIR/$c.py" "$BOOTSTRAP" "$RUN" "$ONLY" 2>"$OUT/$c.err" | collect "$c/" "$OUT/$c.log"
done
