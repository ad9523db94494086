#!/bin/sh
# Builds with clang and sanitizers in a folder of its own and runs there what needs no reference: sanitize.sh asan|tsan
#
# This is also the clang build with warnings as errors. Fuzz targets are built in the asan folder.
set -eu
cd "$(dirname "$0")/.."
kind=$1
case $kind in
  asan) options="-DTERN_SANITIZE=address,undefined -DTERN_FUZZ=ON" ;;
  tsan) options="-DTERN_SANITIZE=thread" ;;
  *) echo "sanitize: unknown kind '$kind': asan or tsan" >&2; exit 2 ;;
esac

scripts/setup.sh build test tools
# shellcheck disable=SC2086
CC=clang scripts/build.sh "build-$kind" $options
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
export TERN_PATIENCE=20
results=$PWD/build-$kind/results.xml
rm -f "$results"
status=0
# One more than there are processors: some tests wait for most of their time.
ctest --test-dir "build-$kind" -j "$(($(nproc) + 1))" -L "^(unit|plain)$" --no-tests=error --output-on-failure --output-junit "$results" \
  --test-output-size-passed 4000000 --test-output-size-failed 4000000 || status=$?
python3 scripts/summary.py "$results" || status=1
exit "$status"
