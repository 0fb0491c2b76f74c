# Rust: rdkafka 0.39 (librdkafka 2.12.1), steps of our own and the crate's own integration tests (4 min; builds 3 min once)
# Its parts are own and crate.
need cargo c++ make pkg-config zlib.h openssl/ssl.h
# The crate's tests want topics made on demand with three partitions, and node 0.
broker main num.partitions=3 node.id=0
own() { cp "$DIR/Cargo.toml" "$DIR/main.rs" . && cargo build -q; }
build rust own "$(cat "$DIR/Cargo.toml" "$DIR/main.rs" | cksum)"
! part own || "$BUILD/target/debug/suite-rust" "$BOOTSTRAP" "$RUN" "$ONLY" 2>"$OUT/own.err" | collect own/ "$OUT/own.log"
if part crate; then
  version=$(sed -n 's/^rdkafka = .*"=\([0-9.]*\)".*/\1/p' "$DIR/Cargo.toml")
  crate() { cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"rdkafka-$1" crate && cd crate && cargo test -q --no-run --tests; }
  build rust-crate crate "$version"
  (cd "$BUILD/crate" && KAFKA_HOST=$BOOTSTRAP KAFKA_VERSION=4.4.0 timeout 1500 cargo test --no-fail-fast --tests -- --test-threads=2) >"$OUT/crate.log" 2>&1
  # 'test NAME ... ok' below 'Running tests/FILE.rs'; unit tests and helpers say nothing about a broker.
  awk '/Running / { file = $2; sub(/.*\//, "", file); sub(/\.rs.*/, "", file) }
    /^test .* \.\.\. (ok|FAILED|ignored)$/ && file !~ /^(utils|lib|unittests)$/ && $2 !~ /^utils::/ {
      print ($NF == "ok" ? "PASS" : $NF == "FAILED" ? "FAIL" : "SKIP") " crate/" file "::" $2 }' "$OUT/crate.log" | grep -E "^[A-Z]+ .*${ONLY:-}" | collect "" "$OUT/crate.other"
fi
