#!/bin/sh
# Installs the Debian packages that a job needs, where they are missing: setup.sh [build] [test] [tools] [python] [cross] [package]
#
#   build    compiler, CMake, the libraries tern links with        python  to fetch models and to run the script tests
#   test     what `make test` adds (cmocka; g++, which the reference needs at run time; valgrind)
#   tools    clang for sanitizers and fuzzing, clang-format, clang-tidy
#   cross    a compiler for aarch64 and qemu to run its programs (scripts/aarch64.sh)
#   package  what a Debian package is made and tried with (scripts/package.sh)
#
# Says nothing and costs milliseconds when everything is there. Needs root or sudo only when something is missing.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }
have_lib() { have pkg-config && pkg-config --exists "$@"; }

packages=""
want() { packages="$packages $*"; }

build() {
  have gcc && echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || want gcc libc6-dev
  have cmake || want cmake
  have ninja || want ninja-build
  have pkg-config || want pkg-config
  have_lib 'jansson >= 2.14' || want libjansson-dev
  have_lib oniguruma || want libonig-dev
  have_lib libutf8proc || want libutf8proc-dev
  have_lib yajl || want libyajl-dev
  have_lib 'libmicrohttpd >= 0.9.75' || want libmicrohttpd-dev
  have_lib libedit || want libedit-dev
  have_lib 'libcurl >= 7.85' || want libcurl4-gnutls-dev
  have_lib nettle || want nettle-dev
}

python() {
  have python3 && python3 -c 'import ensurepip, pip, venv' 2>/dev/null || want python3 python3-venv python3-pip
  have unzip || want unzip
  [ -e /etc/ssl/certs/ca-certificates.crt ] || want ca-certificates
}

test_() {
  have_lib cmocka || want libcmocka-dev
  have g++ || want g++
  [ "$(uname -m)" != x86_64 ] || have valgrind || want valgrind
  python
}

tools() {
  have clang || want clang
  have clang-format || want clang-format
  have clang-tidy || want clang-tidy
  # The sanitizer and fuzzer run times are a package of their own, named after clang's version.
  if have clang; then
    [ -e "$(clang -print-runtime-dir)/libclang_rt.fuzzer-$(uname -m).a" ] || want libclang-rt-dev
  else
    want libclang-rt-dev
  fi
}

cross() {
  have aarch64-linux-gnu-gcc && echo '#include <stdio.h>' | aarch64-linux-gnu-gcc -E - >/dev/null 2>&1 ||
    want gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  have qemu-aarch64 || want qemu-user
}

package() {
  have dpkg-shlibdeps || want dpkg-dev
  have debootstrap || want debootstrap
}

for group in "${@:-build}"; do
  case $group in
    build | python | tools | cross | package) "$group" ;;
    test) test_ ;;
    *) echo "setup: unknown group '$group': use build, test, tools, python, cross, package" >&2; exit 2 ;;
  esac
done
[ -n "$packages" ] || exit 0

if ! have apt-get; then
  echo "setup: these Debian packages (or what matches them here) are missing:$packages" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! have sudo; then
    echo "setup: missing packages:$packages: run as root: apt-get install$packages" >&2
    exit 1
  fi
  as_root="sudo"
fi

echo "setup: installing$packages" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600 "$@" >>"$log" 2>&1; }

# Old package lists give 404s, so they are renewed when a first try fails (always on a machine that has none).
# shellcheck disable=SC2086
if ! apt install -y --no-install-recommends $packages; then
  apt update || { tail -n 8 "$log" >&2; echo "setup: apt-get update failed: is there a network?" >&2; exit 1; }
  apt install -y --no-install-recommends $packages ||
    { tail -n 15 "$log" >&2; echo "setup: apt-get could not install$packages" >&2; exit 1; }
fi
