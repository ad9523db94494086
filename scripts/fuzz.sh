#!/bin/sh
# Runs every fuzz target of the asan build for a fixed number of inputs: fuzz.sh RUNS [SECONDS]
#
# RUNS inputs a target or SECONDS (default 600), whichever comes first; as many targets at once as there are processors.
# Seeds are tests/fuzz/corpus/NAME where there are some; what is found new is kept in build-asan/corpus/NAME, a crash in
# build-asan/crash-*.
set -eu
cd "$(dirname "$0")/.."
runs=$1
seconds=${2:-600}

# One target's lines come in one piece. A minute for an input tells of one without an end on a busy machine too.
fuzz() {
  target=$1
  name=$(basename "$target" | sed 's/^fuzz_//')
  corpus=build-asan/corpus/$name
  mkdir -p "$corpus"
  seeds=""
  [ ! -d "tests/fuzz/corpus/$name" ] || seeds=tests/fuzz/corpus/$name
  log=build-asan/fuzz-$name.log
  # shellcheck disable=SC2086
  if "$target" -runs="$runs" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=65536 -seed=1 \
      -artifact_prefix=build-asan/crash-"$name"- "$corpus" $seeds >"$log" 2>&1; then
    said="fuzz $name: $(grep -E '^(Done|stat::number_of_executed_units)' "$log" | tail -n 1)"
  else
    said=$(printf 'FAIL fuzz %s:\n' "$name"; tail -n 40 "$log")
  fi
  printf '%s\n' "$said"
}

if [ "${3:-}" ]; then # one of those below
  fuzz "$3"
  exit 0
fi
set --
for target in build-asan/tests/fuzz_*; do
  if [ -f "$target" ] && [ -x "$target" ]; then set -- "$@" "$target"; fi
done
said=build-asan/fuzz.log
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" scripts/fuzz.sh "$runs" "$seconds" | tee "$said"
passed=$(grep -c '^fuzz [a-z_0-9]*: ' "$said") || :
failed=$(($# - passed))
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
