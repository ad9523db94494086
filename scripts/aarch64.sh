#!/bin/sh
# Builds for aarch64 in build-aarch64 and runs under qemu what depends on the processor: aarch64.sh [libraries]
#
# The unit tests of base, ops, cache and plan, and the replay of the stored goldens. The arm64 libraries are fetched as
# Debian packages and unpacked into build-aarch64/sysroot; nothing of them is installed, and apt's own lists stay as
# they are. Without the server, whose library needs a dozen more. `aarch64.sh libraries` only fetches.
set -eu
cd "$(dirname "$0")/.."
if [ "$(uname -m)" = aarch64 ]; then
  echo "aarch64: this is one: make test says more" >&2
  exit 0
fi
dir=$PWD/build-aarch64
sysroot=$dir/sysroot
libraries="libjansson4 libjansson-dev libonig5 libonig-dev libutf8proc2 libutf8proc-dev libyajl2 libyajl-dev libcmocka0 libcmocka-dev"

fetch_libraries() {
  mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$sysroot"
  apt() {
    apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$dir/apt/lists" \
      -o Dir::State::status=/dev/null -o Dir::Cache="$dir/apt" -o APT::Sandbox::User=root -o Acquire::Retries=3 "$@"
  }
  apt -q update && (cd "$dir/apt" && rm -f ./*.deb && apt -q download $libraries) || return 1
  for package in "$dir"/apt/*.deb; do
    dpkg -x "$package" "$sysroot" || return 1
  done
  rm -rf "$dir/apt"
  echo "$libraries" >"$sysroot/complete"
}

scripts/setup.sh build test cross
if [ "$(cat "$sysroot/complete" 2>/dev/null)" != "$libraries" ]; then
  mkdir -p "$dir"
  fetch_libraries >"$dir/fetch.log" 2>&1 ||
    { tail -n 8 "$dir/fetch.log" >&2; echo "aarch64: the arm64 libraries could not be fetched" >&2; exit 1; }
fi
[ "${1:-}" != libraries ] || exit 0
scripts/build.sh build-aarch64 "-DCMAKE_TOOLCHAIN_FILE=$PWD/scripts/aarch64.cmake" "-DTERN_SYSROOT=$sysroot" -DTERN_SERVER=OFF -DTERN_HUB=OFF -DTERN_EDIT=OFF

# The binary as a command, for scripts.
cat >"$dir/tern-emulated" <<END
#!/bin/sh
exec qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$sysroot/usr/lib/aarch64-linux-gnu $dir/tern "\$@"
END
chmod +x "$dir/tern-emulated"

export TERN_EMULATED=1
results=$dir/results.xml
rm -f "$results"
status=0
ctest --test-dir build-aarch64 -j "$(nproc)" -R '^unit\.test_(base|cores|kv|math|ops_.*|plan|quant_config|rng|rope|sample|threads)$' \
  --no-tests=error --output-on-failure --output-junit "$results" \
  --test-output-size-passed 4000000 --test-output-size-failed 4000000 || status=$?
python3 scripts/summary.py "$results" || status=1
echo "goldens, on aarch64:"
export TERN_BUILD="$dir" TERN_BIN="$dir/tern-emulated"
python3 tests/golden/fast.py >"$dir/fast.log" 2>&1 &
fast=$!
python3 tests/golden/replay.py || status=1
wait "$fast" || status=1
cat "$dir/fast.log"
exit "$status"
