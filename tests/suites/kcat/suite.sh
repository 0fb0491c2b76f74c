# kcat on the system's librdkafka (Debian: 1.7.1 on 2.0.2): codecs, headers, offsets, groups, transactions (2 min)
# SASL=address of a listener with PLAIN, user adminplain, password admin-secret, adds a step.
need kcat python3
broker main num.partitions=4
T=kc-$RUN

kc() { timeout 60 kcat -b "$BOOTSTRAP" -q "$@"; }
put() { local topic=$1; shift; kc -P -t "$topic" "$@"; }
get() { local topic=$1; shift; kc -C -t "$topic" -o beginning -e "$@"; }
member() { local group=$1 topic=$2; shift 2; kc -G "$group" -X auto.offset.reset=earliest "$@" -e "$topic" 2>/dev/null; }
lines() { local n; n=$(wc -l); [ "$n" -eq "$1" ] || { echo "want $1 lines, got $n"; return 1; }; }

metadata() {
  put "$T-meta" <<<x
  kc -L -J | python3 -c '
import json, sys
m = json.load(sys.stdin)
assert m["brokers"] and m["controllerid"] >= 0, m
t = [t for t in m["topics"] if t["topic"] == sys.argv[1]][0]
assert t["partitions"] and all(p["leader"] >= 0 and p["replicas"] and p["isrs"] for p in t["partitions"]), t' "$T-meta"
}
codec() { # the same lines come back
  seq 1000 >"$OUT/in"
  put "$T-$1" -p 0 -z "$1" -X enable.idempotence=true -l "$OUT/in"
  get "$T-$1" -p 0 | cmp - "$OUT/in"
}
acks() { local a; for a in 0 1 all; do seq 10 | put "$T-acks" -p 0 -X "acks=$a"; done; sleep 1; get "$T-acks" -p 0 | lines 30; }
key_header_null() {
  printf 'k1:v1\nk2:\n' | put "$T-kh" -p 0 -K : -Z -H a=b -H c=d
  get "$T-kh" -p 0 -f '%k|%S|%h|%p|%o\n' | diff - <(printf 'k1|2|a=b,c=d|0|0\nk2|-1|a=b,c=d|0|1\n')
}
large_message() {
  head -c 675000 /dev/urandom | base64 -w0 >"$OUT/big" # 900,000 characters
  put "$T-big" -p 0 "$OUT/big"
  get "$T-big" -p 0 | tr -d '\n' | cmp - "$OUT/big"
}
too_large() {
  head -c 3000000 /dev/zero | tr '\0' a >"$OUT/huge"
  ! timeout 60 kcat -b "$BOOTSTRAP" -v -P -t "$T-huge" -p 0 -X message.max.bytes=5000000 "$OUT/huge" >"$OUT/huge.err" 2>&1
  grep -i 'too large' "$OUT/huge.err"
}
offsets() {
  local t=$T-off; seq 100 | put "$t" -p 0
  get "$t" -p 0 | lines 100
  kc -C -t "$t" -p 0 -o -10 -e | lines 10
  kc -C -t "$t" -p 0 -o 40 -e | lines 60
  kc -C -t "$t" -p 0 -o end -e | lines 0
  kc -C -t "$t" -p 0 -o 5 -c 3 | lines 3
}
query_offsets() { seq 7 | put "$T-q" -p 0; kc -Q -t "$T-q:0:-1" | grep 'offset 7$'; kc -Q -t "$T-q:0:-2" | grep 'offset 0$'; }
time_offsets() { # before all, in between, up to that time
  local t=$T-ts middle; seq 5 | put "$t" -p 0; sleep 1.2; middle=$(date +%s%3N); sleep 1.2; seq 3 | put "$t" -p 0
  kc -C -t "$t" -p 0 -o s@1 -e | lines 8
  kc -C -t "$t" -p 0 -o "s@$middle" -e | lines 3
  kc -C -t "$t" -p 0 -o s@1 -o "e@$middle" -e | lines 5
  kc -Q -t "$t:0:$middle" | grep 'offset 5$'
}
out_of_range() { seq 5 | put "$T-oor" -p 0; kc -C -t "$T-oor" -p 0 -o 500 -e -X topic.auto.offset.reset=earliest | lines 5; }
group() { seq 20 | put "$T-g"; member "$T-g" "$T-g" | lines 20; seq 5 | put "$T-g"; member "$T-g" "$T-g" | lines 5; }
group_sticky() { seq 20 | put "$T-gc"; member "$T-gc" "$T-gc" -X partition.assignment.strategy=cooperative-sticky | lines 20; }
group_static() { local n; seq 20 | put "$T-gs"; for n in 20 0; do member "$T-gs" "$T-gs" -X group.instance.id=one | lines "$n"; done; }
group_two() { # two members share the partitions; every line is read once
  local m
  seq 50 | put "$T-g2"
  for m in 1 2; do timeout 20 kcat -b "$BOOTSTRAP" -q -u -G "$T-g2" -X auto.offset.reset=earliest -X session.timeout.ms=6000 "$T-g2" >"$OUT/member$m" 2>/dev/null & done
  sleep 8; seq 51 100 | put "$T-g2" -X partitioner=random -X sticky.partitioning.linger.ms=0; sleep 4
  kill %1 %2 2>/dev/null; wait || true
  sort -n "$OUT/member1" "$OUT/member2" | lines 100
  sort -nu "$OUT/member1" "$OUT/member2" | lines 100
}
regex_group() {
  local t; for t in a b; do seq 5 | put "kcre${RUN//-/}-$t"; done; sleep 1
  member "$T-re" "^kcre${RUN//-/}-.*" -X topic.metadata.refresh.interval.ms=500 | lines 10
}
transaction() {
  seq 10 | put "$T-txn" -p 0 -X "transactional.id=$T-txn"
  get "$T-txn" -p 0 -X isolation.level=read_committed | lines 10
  get "$T-txn" -p 0 -X isolation.level=read_uncommitted | lines 10
}
transaction_open() { # hidden from read_committed while it is open (kcat reads its input in large pieces)
  local t=$T-open writer
  seq 3 | put "$t" -p 0
  { seq 4 50000; sleep 14; } | put "$t" -p 0 -X "transactional.id=$t" -X linger.ms=0 & writer=$!
  sleep 6
  get "$t" -p 0 -X isolation.level=read_committed | lines 3
  [ "$(get "$t" -p 0 -X isolation.level=read_uncommitted | wc -l)" -gt 1000 ]
  wait "$writer"
  get "$t" -p 0 -X isolation.level=read_committed | lines 50000
}
fetch_wait() {
  local t=$T-wait reader
  put "$t" -p 0 <<<first
  kc -C -t "$t" -p 0 -o end -c 1 >"$OUT/late" & reader=$!
  sleep 3; put "$t" -p 0 <<<late; wait "$reader"
  grep -x late "$OUT/late"
}
bulk() { seq 200000 >"$OUT/in"; put "$T-bulk" -p 0 -z lz4 -X linger.ms=5 -l "$OUT/in"; get "$T-bulk" -p 0 | cmp - "$OUT/in"; }
sasl_plain() {
  [ -n "${SASL:-}" ] || { echo 'no SASL listener'; exit 77; }
  timeout 30 kcat -b "$SASL" -q -L -X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=PLAIN -X sasl.username=adminplain -X sasl.password=admin-secret >/dev/null
}

step metadata metadata
for z in none gzip snappy lz4 zstd; do step "codec_$z" codec "$z"; done
for s in acks key_header_null large_message too_large offsets query_offsets time_offsets out_of_range group group_sticky group_static group_two \
  regex_group transaction transaction_open fetch_wait bulk sasl_plain; do step "$s" "$s"; done
