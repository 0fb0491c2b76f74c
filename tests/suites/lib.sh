# What the suites share. `run` sources this and then one suite's suite.sh, in a shell of its own, and sets before:
#   SUITE     the suite's name; DIR is its folder
#   PARTS     the parts of it that were asked for, empty for all
#   ONLY      a regular expression over step names, empty for all
#   GIVEN     name=address of the brokers that are already there; empty: the suite's brokers are started
#   BROKER    the binary under test; CACHE keeps what is downloaded and built; OUT takes the logs of this run
# A suite calls need, broker and build, does its steps with step, record or collect, and that's all: finish comes after it.
set -uo pipefail
DIR=$SUITES/$SUITE
RUN=$(date +%s)-$$ # part of every name that a suite leaves in a broker, so that it can run there again
JAVA_FLAGS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true"
declare -A ADDRESS=() PORT=() PID=() SETTINGS=()
missing=0
: >"$OUT/steps"; : >"$OUT/processes"

say() { echo "$SUITE: $*" >&2; }
die() { say "$@"; exit 2; }
part() { [ ${#PARTS[@]} -eq 0 ] || [[ " ${PARTS[*]} " == *" $1 "* ]]; }
wanted() { [[ $1 =~ ${ONLY:-.} ]]; }

# --- What a suite needs. Without it the suite isn't run, which is told apart from a failure.

declare -A debian=([java]=openjdk-17-jdk-headless [javac]=openjdk-17-jdk-headless [mvn]=maven [python3]=python3-venv [node]=nodejs [npm]=npm
  [cargo]=cargo [kcat]=kcat [cc]=gcc [c++]=g++ [make]=make [perl]=perl [curl]=curl [pkg-config]=pkg-config [zlib.h]=zlib1g-dev [openssl/ssl.h]=libssl-dev
  [zstd.h]=libzstd-dev [lz4.h]=liblz4-dev [sasl/sasl.h]=libsasl2-dev [curl/curl.h]=libcurl4-openssl-dev [rapidjson/document.h]=rapidjson-dev)

# have THING: a command, or a C header.
have() {
  case $1 in
    *.h) [ -n "$(find /usr/include /usr/local/include -path "*/$1" -print -quit 2>/dev/null)" ];;
    *) command -v "$1" >/dev/null;;
  esac
}

# need THING...: all of these commands and headers. INSTALL=1 lets root on Debian install what is missing.
need() {
  local t lack=() packages=()
  for t; do have "$t" || { lack+=("$t"); packages+=("${debian[$t]:-$t}"); }; done
  [ ${#lack[@]} -gt 0 ] || return 0
  if [ -n "${INSTALL:-}" ]; then
    { apt-get install -y -qq "${packages[@]}" || { apt-get update -qq && apt-get install -y -qq "${packages[@]}"; }; } >"$OUT/apt" 2>&1 && return 0
    tail -3 "$OUT/apt" >&2
  fi
  say "needs ${lack[*]} (on Debian: apt-get install ${packages[*]})"
  exit 3
}

# build KEY COMMAND [ARGUMENT]...: runs COMMAND, a function, in a new folder of the cache, and again only when its text
# or its arguments change. The folder is BUILD afterwards.
build() {
  local key=$1 stamp; shift
  stamp=$({ declare -f "$1"; echo "$@"; } | cksum)
  BUILD=$CACHE/$key
  [ "$(cat "$BUILD/.built" 2>/dev/null)" = "$stamp" ] && return
  say "builds $key"
  rm -rf "$BUILD"; mkdir -p "$BUILD"
  (set -e; cd "$BUILD"; "$@") >"$OUT/build" 2>&1
  [ $? = 0 ] || { tail -20 "$OUT/build" >&2; die "could not build $key, see $OUT/build"; }
  echo "$stamp" >"$BUILD/.built"
}

# --- Brokers.

free_port() {
  local p
  while p=$((RANDOM % 10000 + 20000)); (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; do :; done
  echo "$p"
}

# broker NAME [KEY=VALUE]...: a broker with these settings, new and empty, or the one that was given under this name. Its address
# is in ADDRESS[NAME], and BOOTSTRAP is the address of the one called main.
broker() {
  local name=$1 kv; shift
  for kv in $GIVEN; do [ "${kv%%=*}" = "$name" ] && ADDRESS[$name]=${kv#*=}; done
  if [ -z "${ADDRESS[$name]:-}" ]; then
    [ -z "$GIVEN" ] || { say "no broker given as $name: its steps are skipped; it would be started with $*"; return 1; }
    PORT[$name]=${PORT[$name]:-$(free_port)} SETTINGS[$name]="$*" ADDRESS[$name]=127.0.0.1:${PORT[$name]}
    broker_up "$name" || { tail -5 "$OUT/broker-$name.log" >&2; die "the broker does not start, see $OUT/broker-$name.log"; }
  fi
  [ "$name" != main ] || BOOTSTRAP=${ADDRESS[main]}
}

# broker_up NAME: starts it, for the first time or again on its data, and returns when it is ready.
broker_up() {
  local name=$1 log=$OUT/broker-$1.log set=() kv from i
  for kv in ${SETTINGS[$name]}; do set+=(--set "$kv"); done
  touch "$log"; from=$(wc -l <"$log")
  # What a suite exports as KAFKA_SOMETHING would be a setting of the broker.
  setsid env $(printf -- '-u %s ' "${!KAFKA_@}" BROKER_UNSET) "$BROKER" --set "listeners=PLAINTEXT://127.0.0.1:${PORT[$name]}" --set "log.dirs=$OUT/data-$name" --set http.listener= "${set[@]}" >>"$log" 2>&1 </dev/null &
  PID[$name]=$!; echo "${PID[$name]}" >>"$OUT/processes"
  for i in $(seq 300); do
    tail -n "+$((from + 1))" "$log" | grep -q 'msg=ready' && return
    kill -0 "${PID[$name]}" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# broker_kill NAME: kill -9, as a crash of the process would be.
broker_kill() { kill -KILL "${PID[$1]}"; wait "${PID[$1]}" 2>/dev/null; }

# brokers_down stops what this suite started. A broker that ends badly or logged an error fails the suite.
brokers_down() {
  local name rc errors
  for name in "${!PID[@]}"; do
    kill -TERM "${PID[$name]}" 2>/dev/null; wait "${PID[$name]}" 2>/dev/null; rc=$?
    errors=$(grep -c 'level=ERROR' "$OUT/broker-$name.log")
    [ "$rc" = 0 ] && [ "$errors" = 0 ] || record FAIL "broker_$name" "ended with status $rc, logged $errors errors, see $OUT/broker-$name.log"
    rm -rf "$OUT/data-$name"
  done
}

# --- Processes.

# spawn LOG COMMAND...: starts it in the background in a process group of its own; its pid is in SPAWNED. It ends with the suite.
spawn() { local log=$1; shift; setsid "$@" >"$log" 2>&1 </dev/null & SPAWNED=$!; disown "$SPAWNED"; echo "$SPAWNED" >>"$OUT/processes"; }

# reap PID [SIGNAL]: ends what spawn started, with all its children, and waits for that.
reap() {
  local i
  kill -s "${2:-TERM}" -- "-$1" 2>/dev/null
  for i in $(seq 150); do kill -0 -- "-$1" 2>/dev/null || return 0; sleep 0.1; done
  kill -KILL -- "-$1" 2>/dev/null
}

clean_up() { local p; for p in $(cat "$OUT/processes"); do kill -KILL -- "-$p" 2>/dev/null || kill -KILL "$p" 2>/dev/null; done; }
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- Steps and their outcome.

# record PASS|FAIL|SKIP STEP [REASON]
record() { local line="$1 $2${3:+  # ${3:0:300}}"; echo "$line" >>"$OUT/steps"; echo "$line"; }

# step NAME COMMAND...: passes when COMMAND, a function that runs under set -e, does; status 77 skips. What it printed is in the log.
step() {
  local name=$1 rc; shift; wanted "$name" || return 0
  (set -e; "$@") >"$OUT/$name.log" 2>&1 </dev/null; rc=$?
  case $rc in
    0) record PASS "$name";;
    77) record SKIP "$name" "$(tail -1 "$OUT/$name.log")";;
    *) record FAIL "$name"; tail -12 "$OUT/$name.log" | cut -c1-400 | sed 's/^/    | /' >&2;;
  esac
}

# collect PREFIX LOG: takes over the 'PASS|FAIL|SKIP step  # reason' lines of standard input; the others go to the log.
collect() {
  local line rest
  while IFS= read -r line; do
    case $line in
      "PASS "*|"FAIL "*|"SKIP "*) rest=${line#* }; case $rest in *"  # "*) record "${line%% *}" "$1${rest%%  # *}" "${rest#*  # }";; *) record "${line%% *}" "$1$rest";; esac;;
      *) printf '%s\n' "$line" >>"$2";;
    esac
  done
}

# go_results LOG: 'STATUS test' for each leaf of a `go test -v` log. A test that began and never ended (a panic, the time limit) has
# failed; a parent is listed only when it fails and none of its children does.
go_results() {
  awk '
    function family(n, list) { while (sub(/\/[^\/]*$/, "", n)) list[n] = 1 }
    /^ *=== RUN / { if (!($3 in state)) { order[++count] = $3; state[$3] = "FAIL" } family($3, parent) }
    match($0, /--- (PASS|FAIL|SKIP): /) {
      name = substr($0, RSTART + RLENGTH); sub(/ \([0-9.]+s\).*$/, "", name)
      if (name in state) { state[name] = substr($0, RSTART + 4, 4); ended[name] = 1 }
    }
    END {
      for (i = 1; i <= count; i++) if (state[order[i]] == "FAIL") family(order[i], blamed)
      for (i = 1; i <= count; i++) { n = order[i]; if (!(n in parent) || state[n] == "FAIL" && !(n in blamed)) print state[n], n }
    }' "$1"
}

# go_outcome LOG TEST [STEP]: records how one test ended that had a process of its own.
go_outcome() {
  local r; r=$(grep -aoE "^ *--- (PASS|FAIL|SKIP): $2 " "$1" | tail -1 | sed 's/^ *--- //' | cut -c1-4)
  ! grep -aqE '^(FAIL|panic: )' "$1" || r=FAIL
  record "${r:-FAIL}" "${3:-$2}"
}

# expected STEP: what happens on Apache Kafka; empty where that isn't known.
expected() { awk -v step="$1" '$1 ~ /^(PASS|FAIL|SKIP)$/ && $2 == step { print $1; exit }' "$DIR/expected.txt"; }

# excused STEP: whether it is listed as an exception of the broker under test.
excused() { [ -z "$GIVEN" ] && awk -v suite="$SUITE" -v step="$1" '$1 == suite && step ~ "^(" $2 ")$" { found = 1 } END { exit !found }' "$SUITES/exceptions"; }

# tries LOG STEP COMMAND...: runs a test that has deadlines of its own, once more if it fails and shouldn't. Machines are busy.
tries() {
  local log=$1 step=$2 i; shift 2
  for i in $(seq "${TRIES:-2}"); do
    "$@" >"$log" 2>&1 </dev/null && return 0
    [ "$(expected "$step")" != FAIL ] && ! excused "$step" || return 1
    cp "$log" "$log.try$i"; say "$step failed, try $i of ${TRIES:-2}"
  done
  return 1
}

# --- Java.

# java_classes [MAVEN-PROPERTY]...: the jars of the suite's pom.xml and its compiled files (FILES, by default all); CP is the class path.
java_classes() {
  local files=(${FILES[@]+"${FILES[@]}"}) jars
  need javac mvn
  [ ${#files[@]} -gt 0 ] || files=("$DIR"/*.java)
  fetch_jars() { cp "$DIR/pom.xml" . && mvn -B -q -Dstyle.color=never dependency:copy-dependencies -DoutputDirectory=. "${@:2}"; }
  build "$SUITE/jars${1:+-${1//[^a-z0-9.=-]/}}" fetch_jars "$(cksum <"$DIR/pom.xml")" "$@"; jars=$BUILD
  compile "$jars" "${files[@]}"
}

# compile JARS FILE...
compile() {
  local jars=$1; shift
  compile_files() { javac -nowarn -proc:none -XDsuppressNotes -d . -cp "$2/*" "${@:3}"; }
  build "$SUITE/classes-$(basename "$jars")" compile_files "$(cat "$@" | cksum)" "$jars" "$@"
  CP=$BUILD:$jars/*
}

# kafka_jars: Apache Kafka's own jars, of which its tools are part; KAFKA_JARS is their folder.
kafka_jars() {
  need java javac mvn
  fetch_kafka() { cp "$SUITES/kafka/pom.xml" . && mvn -B -q -Dstyle.color=never dependency:copy-dependencies -DoutputDirectory=.; }
  build kafka/jars fetch_kafka "$(cksum <"$SUITES/kafka/pom.xml")"; export KAFKA_JARS=$BUILD
}
LOG4J="-Dlog4j2.configurationFile=$SUITES/kafka/log4j2.properties"

# kafka TOOL ARGUMENT...: one of Kafka's tools (needs kafka_jars).
kafka() { "$SUITES/kafka/tool" "$@"; }

# --- The end.

# finish compares with what happens on Apache Kafka and with the list of exceptions. Status 1: something that passes there doesn't here.
finish() {
  brokers_down
  awk -v suite="$SUITE" -v parts="${PARTS[*]-}" -v only="$ONLY" '
    FILENAME ~ /exceptions$/ { if ($1 == suite) { why = $0; sub(/^[^#]*# */, "", why); pattern[++rules] = "^(" $2 ")$"; reason[rules] = why } next }
    $1 !~ /^(PASS|FAIL|SKIP)$/ { next }
    FILENAME ~ /expected.txt$/ { kafka[$2] = $1; next }
    { ours[$2] = $1; n[$1]++ }
    function excused(s, i) { for (i = 1; i <= rules; i++) if (s ~ pattern[i]) return reason[i]; return "" }
    function asked(s, list, k, i) { if (only != "") return 0; k = split(parts, list, " "); for (i = 1; i <= k; i++) if (index(s, list[i] "/") == 1) return 1; return k == 0 }
    END {
      for (s in kafka) if (!(s in ours) && kafka[s] == "PASS" && asked(s) && excused(s) == "") { print "MISSING " s "  # passes on Apache Kafka"; bad = 1 }
      for (s in ours) {
        if (ours[s] == "PASS") { if (excused(s) != "") print "note: " s " passes and is listed as an exception"; continue }
        if (ours[s] == "SKIP" && kafka[s] != "PASS" || kafka[s] == "FAIL") continue
        if (excused(s) != "") { known++; continue }
        print "REGRESSED " s ": " ours[s] (s in kafka ? ", passes on Apache Kafka" : ", not known"); bad = 1
      }
      if (!length(ours)) { print "REGRESSED: no step ran"; bad = 1 }
      printf "%s: %d passed, %d failed, %d skipped, %d of these are known exceptions\n", suite, n["PASS"], n["FAIL"], n["SKIP"], known
      exit bad
    }' "$SUITES/exceptions" "$DIR/expected.txt" "$OUT/steps"
}
