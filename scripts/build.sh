#!/bin/sh
# Configures (once) and builds a folder: build.sh DIR [-DOPTION=VALUE ...]
#
# Quiet when nothing is to be done. Everything it says goes to stderr, so that `make run` prints the answer alone.
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
[ -t 2 ] && [ -z "${TERN_QUIET:-}" ] || quiet="-- --quiet"
# shellcheck disable=SC2086
if [ -n "${quiet:-}" ]; then
  cmake --build "$dir" $quiet >&2
elif ! ninja -C "$dir" -n 2>/dev/null | grep -q 'no work to do'; then
  cmake --build "$dir" >&2
fi
