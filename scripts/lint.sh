#!/bin/sh
# clang-tidy with the profile in .clang-tidy over the sources: lint.sh [FILES...] (default: all of src/)
set -eu
cd "$(dirname "$0")/.."
[ -f build-asan/compile_commands.json ] || CC=clang cmake -S . -B build-asan -G Ninja -DTERN_SANITIZE=address,undefined -DTERN_FUZZ=ON >/dev/null
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.c')
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build-asan 2>/dev/null
