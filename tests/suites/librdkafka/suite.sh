# C, librdkafka 2.15.1: its own test suite, a process for each number (16 min; the part full an hour; builds 3 min once)
# Its parts: quick (the suite's quick mode, 240 s a test; the default), brief (quick without the slow ones, 4 min) and full (everything,
# also what cuts and slows connections, 900 s a test). JOBS (2) processes run at a time; what fails then is tried again alone.
# The other variables of librdkafka's tests work too: TEST_DEBUG, TEST_LEVEL, SUBTESTS.
need npm make cc c++ perl zlib.h openssl/ssl.h zstd.h lz4.h sasl/sasl.h rapidjson/document.h
[ ${#PARTS[@]} -gt 0 ] || PARTS=(quick)
kafka_jars # some tests call Kafka's scripts
compile_librdkafka() { # the npm package carries librdkafka and its tests
  npm pack --silent "@confluentinc/kafka-javascript@$1"
  tar xf ./*.tgz package/deps/librdkafka; rm ./*.tgz
  cd package/deps/librdkafka
  # The tests make topics with three replicas; here there is one broker.
  perl -0pi -e 's/(void test_admin_create_topic\(.*?\n)(        newt\[0\] =\n)/$1        if (replication_factor > 1)\n                replication_factor = 1;\n$2/s' tests/test.c
  grep -q 'if (replication_factor > 1)' tests/test.c
  # One test ends at its first ACL; without an authorizer what comes after it is tested too. And it deletes groups of static members
  # after 6 s, the moment at which their sessions end.
  perl -0pi -e 's/(do_test_(?:Create|Describe|Delete)Acls\([^)]*\) \{\n)/$1        if (getenv("SUITE_NO_ACLS"))\n                return;\n/g; s/rd_sleep\(6\)/rd_sleep(7)/' tests/0081-admin.c
  [ "$(grep -cE 'SUITE_NO_ACLS|rd_sleep\(7\)' tests/0081-admin.c)" = 4 ]
  ./configure --disable-curl
  make -j2 libs
  make -j2 -C tests build
}
build librdkafka compile_librdkafka 1.10.1
export TESTS=$BUILD/package/deps/librdkafka/tests

# group.initial.rebalance.delay.ms stays 3000: one test counts on it.
broker main auto.create.topics.enable=true num.partitions=4 group.share.min.record.lock.duration.ms=1000
broker noauto auto.create.topics.enable=false num.partitions=4 group.share.min.record.lock.duration.ms=1000
mkdir -p kafka/bin kafka/libs
ln -s "$KAFKA_JARS"/kafka-clients-[0-9.]*[0-9].jar kafka/libs/
script() { printf '#!/bin/sh\nunset LD_LIBRARY_PATH\nexec %s\n' "$2" >"kafka/bin/$1.sh"; chmod +x "kafka/bin/$1.sh"; }
for t in topics acls configs; do script "kafka-$t" "\"$SUITES/kafka/tool\" $t \"\$@\""; done
script kafka-run-class "java -cp \"\$CLASSPATH:$KAFKA_JARS/*\" \"\$@\""
for b in main noauto; do printf 'bootstrap.servers=%s\ntest.timeout.multiplier=2\n' "${ADDRESS[$b]:-}" >"$b.conf"; done
export OUT MAIN=${ADDRESS[main]} NOAUTO=${ADDRESS[noauto]:-} KAFKA_PATH=$OUT/kafka ZK_ADDRESS= TEST_KAFKA_VERSION=4.2.0
export RDLIBS=$TESTS/../src:$TESTS/../src-cpp

# table: 'number broker test' of each test of the suite that needs a broker and no person. Those with mock in their name bring a fake
# cluster along.
table() {
  sed -n '/^struct test tests\[\] = {/,/^};/p' "$TESTS/test.c" | tr -d '\n' | sed 's/_TEST(/\n&/g' | awk -F'[(,]' '
    /^_TEST/ && !/TEST_F_LOCAL/ && !/TEST_F_MANUAL/ && !/^_TEST\([0-9a-z_]*_mock/ {
      name = $2; gsub(/ /, "", name); print substr(name, 1, 4), (/scenario = "noautocreate"/ ? "noauto" : "main"), name }'
}

# number NUMBER BROKER TEST...: runs a number and prints 'STATUS test' for each of its tests. The exit code of the process decides: the
# summary calls a test passed of which quick mode left nothing, and that took no time.
number() {
  local n=$1 broker=$2 log=$OUT/$1-$2.log address=$MAIN scenario=default t rc state took flags=$FLAGS; shift 2
  [ "$broker" = main ] || address=$NOAUTO scenario=noautocreate
  if [ -z "$address" ]; then for t; do echo "SKIP $t"; done; return; fi
  case $n in 0018|0019|0026|0045|0050|0061|0089|0102|0122|0132) flags=${flags#-Q};; esac # nothing is left of these in quick mode
  (cd "$TESTS" && LD_LIBRARY_PATH=$RDLIBS BROKERS=$address RDKAFKA_TEST_CONF=$OUT/$broker.conf TESTS=$n timeout -k 5 "$LIMIT" ./test-runner -p1 -L $flags -s "$scenario" </dev/null) >"$log" 2>&1
  rc=$?
  sed -i 's/\x1b\[[0-9;]*m//g' "$log"
  for t; do
    read -r state took < <(grep -aE "^\| $t +\| +(PASSED|FAILED|SKIPPED)" "$log" | tail -1 | awk '{ print $4, $6 }')
    case $rc:$state:$took in
      0:PASSED:0.000s) state=SKIP;;
      0:PASSED:*) state=PASS;;
      0:*|*:SKIPPED:*) state=SKIP;;
      *:PASSED:*) grep -aqE "^\| ${n}_[a-z0-9_]+ +\| +FAILED" "$log" && state=PASS || state=FAIL;; # another of this number failed
      *) state=FAIL;;
    esac
    echo "$state $t"
  done
}
export -f number

slow='0033|0052|0077|0081|0089|0091|0093|0098|0101|0102|0109|0115|0119|0139|0184' unhurried=()
for p in "${PARTS[@]}"; do
  export FLAGS="-Q -E" LIMIT=240; prefix=quick skip='^$' again=()
  case $p in full) FLAGS= LIMIT=900 prefix=full;; brief) skip="^($slow) ";; esac
  while read -r state t; do
    if [ "$state" = FAIL ] && [ "${JOBS:-2}" -gt 1 ] && ! excused "$prefix/$t"; then again+=("$t"); else record "$state" "$prefix/$t"; fi
  done < <(table | grep -E "${ONLY:-.}" | grep -vE "$skip" | awk '{ k = $1 " " $2; if (!(k in tests)) order[++n] = k; tests[k] = tests[k] " " $3 } END { for (i = 1; i <= n; i++) print order[i] tests[order[i]] }' |
    xargs -r -P "${JOBS:-2}" -L1 bash -c 'number "$@"' number)
  for t in ${again[@]+"${again[@]}"}; do
    say "again, alone: $t"; for l in "$OUT/${t%%_*}"-*.log; do cp "$l" "$l.try1"; done
    while read -r state u; do [ "$u" != "$t" ] || record "$state" "$prefix/$u"; done < <(table | awk -v t="$t" '$3 == t' | xargs -L1 bash -c 'number "$@"' number)
  done
  if [ "$p" != brief ] && wanted 0081_admin_but_acls; then
    for t in 1 2; do read -r state _ < <(SUITE_NO_ACLS=1 number 0081 main 0081_admin); [ "$state" = FAIL ] || break; done
    record "$state" "$prefix/0081_admin_but_acls"
  fi
done
