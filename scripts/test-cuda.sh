#!/bin/sh
# The tests that need an NVIDIA GPU: test-cuda.sh [MODEL...]; the last line is `N passed, N failed, N skipped`.
#
# Kernels against the definitions in plain C, then whole checkpoints on both backends: those named, else the stored goldens
# and what `make test` left in build/parity. compute-sanitizer, where it is installed, goes over small ones.
set -u
cd "$(dirname "$0")/.."
build=${TERN_BUILD:-build}
passed=0 failed=0 skipped=0

part() { # part NAME COMMAND...
  name=$1
  shift
  echo "== $name"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "== $name: FAILED"; fi
}

skip() {
  echo "== $1: skipped, $2"
  skipped=$((skipped + 1))
}

if [ ! -e "$build/libtern-cuda.so" ]; then
  echo "test-cuda: no $build/libtern-cuda.so: the CUDA compiler (nvcc) was not there when tern was built" >&2
  exit 1
fi
[ $# -gt 0 ] || set -- tests/golden/*/model $(ls -d "$build"/parity/*/model 2>/dev/null)

for test in "$build"/cuda_test_*; do
  case $test in
    *_faults) part faults "$test" tests/golden/llama-4bit/model ;;
    *) part "$(basename "$test")" "$test" ;;
  esac
done
part models "$build/cuda_models" "$@"
part "long contexts" "$build/cuda_models" --long tests/golden/*/model
part "100 runs beside other work" "$build/cuda_models" --runs 100 tests/golden/llama-4bit/model tests/golden/qwen3-f16/model

if command -v compute-sanitizer >/dev/null; then
  # Not racecheck: it takes a warp's arrival at a barrier in shared memory for that of the lane that tells it, and reports
  # the other 31 (docs/cuda.md).
  part memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$build/cuda_models" \
    tests/golden/llama-4bit/model tests/golden/llama-sliding-8bit/model
else
  skip "compute-sanitizer" "not installed"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
