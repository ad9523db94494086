#!/bin/sh
# clang-tidy with the profile in .clang-tidy over the sources: lint.sh [FILES...] (default: all of src/)
#
# Each with the flags it is built with. Kernels of aarch64 are not built on another machine: they are read with the
# headers of the cross compiler, as scripts/aarch64.sh builds them.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = --one ]; then # a file of those below
  case $(uname -m):$2 in
    aarch64:*) ;;
    *_neon.c | *_dotprod.c)
      exec clang-tidy --quiet "$2" -- --target=aarch64-linux-gnu -march=armv8.2-a+dotprod -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -ffp-contract=off ;;
  esac
  exec clang-tidy --quiet -p build-asan "$2"
fi
scripts/setup.sh build test tools cross
[ -f build-asan/compile_commands.json ] || CC=clang cmake -S . -B build-asan -G Ninja -DTERN_SANITIZE=address,undefined -DTERN_FUZZ=ON >/dev/null
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.c')
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" scripts/lint.sh --one 2>/dev/null
