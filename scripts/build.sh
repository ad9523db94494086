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

# Ninja says so when it has nothing to do; not asking it is quieter.
if [ -f "$dir/build.ninja" ] && ninja -C "$dir" -n 2>/dev/null | grep -q 'no work to do'; then
  exit 0
fi
log="$dir/build.log"
if [ -t 2 ]; then
  cmake --build "$dir" >&2
else
  echo "building in $dir" >&2
  cmake --build "$dir" >"$log" 2>&1 || { grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" >&2; echo "build: $dir did not build" >&2; exit 1; }
fi
