#!/bin/sh
# clang-format over all C files: format.sh rewrites them, format.sh --check names those that differ
set -eu
cd "$(dirname "$0")/.."
files=$(git ls-files '*.c' '*.h')
# shellcheck disable=SC2086
case ${1:-} in
  --check) clang-format --dry-run --Werror $files ;;
  *) clang-format -i $files ;;
esac
