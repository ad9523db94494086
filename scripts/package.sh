#!/bin/sh
# Makes build/package/tern_VERSION_ARCH.deb of what is built: package.sh [BUILD]
#
# Its time stamps are the commit's, so that the same sources make the same package where they are built by the same
# compilers. Says the file's name.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
scripts/setup.sh build package
scripts/build.sh "$build"
if [ -z "${SOURCE_DATE_EPOCH:-}" ] && git rev-parse --git-dir >/dev/null 2>&1; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
fi
mkdir -p "$build/package"
rm -f "$build"/package/*.deb
if ! cpack --config "$build/CPackConfig.cmake" -B "$build/package" >"$build/package/log" 2>&1; then
  tail -n 20 "$build/package/log" >&2
  echo "package: cpack could not make the package" >&2
  exit 1
fi
rm -rf "$build/package/_CPack_Packages"
ls "$build"/package/*.deb
