# Kafka 4.4's own command-line tools, each with a check of what it prints (5 min)
kafka_jars
broker main num.partitions=4
T=jt-$RUN
export KAFKA_HEAP=-Xmx256M
echo request.timeout.ms=20000 >"$OUT/client.properties"

# kt TOOL ARGUMENT...: what a tool prints comes to out and to the step's log, its status to rc. IN is a file for its standard
# input, LIMIT are its seconds, SHOW the lines that the log gets.
kt() {
  rc=0; out=$(timeout "${LIMIT:-180}" "$SUITES/kafka/tool" "$@" 2>&1 <"${IN:-/dev/null}") || rc=$?
  echo "\$ $* -> $rc"; sed -n "1,${SHOW:-60}p" <<<"$out"
}
k() { local tool=$1; shift; kt "$tool" --bootstrap-server "$BOOTSTRAP" "$@"; } # the same, at the broker

ok() { [ "$rc" = 0 ] || { echo "want status 0, got $rc"; return 1; }; }
fails() { [ "$rc" != 0 ] || { echo "want a failure"; return 1; }; }
has() { grep -qE -- "$1" <<<"$out" || { echo "want /$1/"; return 1; }; }
hasnt() { ! grep -qE -- "$1" <<<"$out" || { echo "don't want /$1/"; return 1; }; }
lines() { local n; n=$(grep -cE -- "$1" <<<"$out"); [ "$n" = "$2" ] || { echo "want $2 lines of /$1/, got $n"; return 1; }; }

# until_has SECONDS REGEX TOOL ARGUMENT...: the tool again and again, until what it prints matches.
until_has() {
  local end=$((SECONDS + $1)) want=$2; shift 2
  while k "$@"; ! grep -qE -- "$want" <<<"$out"; do [ $SECONDS -lt $end ] || { echo "never /$want/"; return 1; }; sleep 0.3; done
}
create() { local topic=$1 partitions=$2; shift 2; k topics --create --topic "$topic" --partitions "$partitions" "$@"; ok; }
produce() { local topic=$1; shift; IN=$OUT/in k console-producer --topic "$topic" "$@"; ok; hasnt 'ERROR|Exception'; }
config() { local type=$1 name=$2; shift 2; k configs "$@" --entity-type "$type" --entity-name "$name"; }
reset() { k consumer-groups --reset-offsets --group "$@"; }
share_from_earliest() { config groups "$1" --alter --add-config share.auto.offset.reset=earliest; ok; }
all_of() { k console-consumer --topic "$1" --from-beginning --timeout-ms 60000 "${@:2}"; }

# files TOPIC SUFFIX: the files of a topic, into FILES with commas between them; the broker says where they are.
files() {
  k log-dirs --describe --topic-list "$1" >/dev/null
  local dir; dir=$(grep -oE '"logDir":"[^"]+"' <<<"$out" | cut -d'"' -f4)
  [ -d "$dir" ] || { echo "the broker's files are not on this machine"; exit 77; }
  FILES=$(printf '%s\n' "$dir/$1"-[0-9]*/*"$2" | paste -sd,)
}

k broker-api-versions >"$OUT/broker.log"
NODES=$(grep -c '(id: ' <<<"$out") NODE=$(grep -oE '\(id: [0-9]+' <<<"$out" | head -1 | grep -oE '[0-9]+')
[ -n "$NODE" ] || { tail -5 "$OUT/broker.log" >&2; die "no broker answers at $BOOTSTRAP"; }

# Steps build on those before them: T-c is the topic of the console's steps, T-g the group that reads it.
for f in topics configs console groups cluster transactions files programs; do
  . "$DIR/$f.sh"
  for s in $(grep -oE '^[a-z0-9_]+\(\)' "$DIR/$f.sh"); do step "${s%()}" "${s%()}"; done
done
