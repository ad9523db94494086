#!/bin/sh
# Builds and runs every test; the last line is `N passed, N failed, N skipped`: test.sh [ctest options]
#
# Tests against the reference and on real weights are skipped, by name, where these cannot be installed.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh build test
scripts/build.sh build

# What cannot be installed is skipped and said; in CI it is a failure.
lacking() {
  echo "test: $1" >&2
  [ "${CI:-}" != true ] || exit 1
}
scripts/oracle.sh build || lacking "the live comparisons with the reference will be skipped"
scripts/clients.sh build || lacking "the tests with official clients will be skipped"
if [ -x build/tern ]; then
  for model in smollm2 qwen2.5-coder-0.5b gemma3-270m; do
    scripts/model.sh $model >/dev/null || lacking "the tests on $model's weights will be skipped"
  done
fi

results=$PWD/build/results.xml
rm -f "$results"
status=0
# One more than there are processors: some tests wait for most of their time.
ctest --test-dir build -j "$(($(nproc) + 1))" --no-tests=error --output-on-failure --output-junit "$results" \
  --test-output-size-passed 4000000 --test-output-size-failed 4000000 "$@" || status=$?
python3 scripts/summary.py "$results" || status=1
exit "$status"
