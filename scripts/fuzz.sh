#!/bin/sh
# Runs every fuzz target of the asan build for a fixed number of inputs: fuzz.sh RUNS [SECONDS]
#
# RUNS inputs a target or SECONDS (default 600), whichever comes first. Seeds are tests/fuzz/corpus/NAME where there are some;
# what is found new is kept in build-asan/corpus/NAME, a crash in build-asan/crash-*.
set -eu
cd "$(dirname "$0")/.."
runs=$1
seconds=${2:-600}
passed=0 failed=0

for target in build-asan/tests/fuzz_*; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  name=$(basename "$target" | sed 's/^fuzz_//')
  corpus=build-asan/corpus/$name
  mkdir -p "$corpus"
  seeds=""
  [ ! -d "tests/fuzz/corpus/$name" ] || seeds=tests/fuzz/corpus/$name
  log=build-asan/fuzz-$name.log
  # shellcheck disable=SC2086
  if "$target" -runs="$runs" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -seed=1 \
      -artifact_prefix=build-asan/crash-"$name"- "$corpus" $seeds >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "fuzz $name: $(grep -E '^(Done|stat::number_of_executed_units)' "$log" | tail -n 1)"
  else
    failed=$((failed + 1))
    echo "FAIL fuzz $name:"
    tail -n 40 "$log"
  fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ]
