#!/bin/sh
# clang-tidy with the profile in .clang-tidy over the sources: lint.sh [FILES...] (default: all of src/)
#
# Each with the flags it is built with. Kernels of aarch64 are not built on another machine: they are read with the
# headers of the cross compiler, as scripts/aarch64.sh builds them. As many files at once as there are processors, the
# largest first; files that are right are not told of, and all that is said of one that is not comes in one piece.
set -eu
cd "$(dirname "$0")/.."

tidy() {
  case $(uname -m):$1 in
    aarch64:*) ;;
    *_neon.c | *_dotprod.c | *_i8mm.c)
      clang-tidy --quiet "$1" -- --target=aarch64-linux-gnu -march=armv8.2-a+dotprod+i8mm -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -ffp-contract=off
      return ;;
  esac
  clang-tidy --quiet -p build-asan "$1"
}

if [ "${1:-}" = --one ]; then # a file of those below
  if ! said=$(tidy "$2" 2>&1); then
    printf 'FAIL lint %s:\n%s\n' "$2" "$said"
    exit 1
  fi
  exit 0
fi
scripts/setup.sh build test tools cross
[ -f build-asan/compile_commands.json ] || CC=clang cmake -S . -B build-asan -G Ninja -DTERN_SANITIZE=address,undefined -DTERN_FUZZ=ON >/dev/null
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(git ls-files -z 'src/*.c' | xargs -0 ls -S)
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" scripts/lint.sh --one
