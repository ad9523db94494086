#!/bin/sh
# Configures (once) and builds a folder: build.sh DIR [-DOPTION=VALUE ...]
#
# TERN_TARGETS names what is built, where that is not all of it. Quiet when nothing is to be done. Everything it says goes to stderr, so that `make run` prints the answer alone.
set -eu
cd "$(dirname "$0")/.."
dir=$1
shift
stamp="$dir/.configured"

# Configure again when the options differ from last time; CMake itself notices edited CMake files.
if [ ! -f "$dir/CMakeCache.txt" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$*" ]; then
  generator=""
  [ -f "$dir/CMakeCache.txt" ] || generator="-G Ninja"
  mkdir -p "$dir"
  # shellcheck disable=SC2086
  if ! cmake -S . -B "$dir" $generator "$@" >"$dir/configure.log" 2>&1; then
    cat "$dir/configure.log" >&2
    echo "build: cmake could not configure $dir" >&2
    exit 1
  fi
  echo "$*" >"$stamp"
fi

# How far a build is: on a terminal alone, and gone when it is done.
tell() {
  [ -t 2 ] || return 0
  while sleep 1; do
    printf '\rbuild: %s\033[K' "$(grep -o '^\[[0-9]*/[0-9]*\]' "$dir/build.log" 2>/dev/null | tail -n 1)" >&2
  done
}

# The log is shown when something fails; a first build is announced.
[ -e "$dir/libtern.a" ] || echo "build: building in $dir, which takes minutes the first time" >&2
tell &
teller=$!
trap 'kill $teller 2>/dev/null || :' EXIT
status=0
cmake --build "$dir" ${TERN_TARGETS:+--target $TERN_TARGETS} >"$dir/build.log" 2>&1 || status=$?
kill $teller 2>/dev/null || :
wait $teller 2>/dev/null || :
[ ! -t 2 ] || printf '\r\033[K' >&2
if [ $status != 0 ]; then
  grep -vE '^\[[0-9]+/[0-9]+\] ' "$dir/build.log" >&2 || cat "$dir/build.log" >&2
  echo "build: $dir did not build" >&2
  exit 1
fi
