#!/bin/sh
# Makes the Debian package and tries it on a system that has nothing: test-package.sh [BUILD]
#
# The system is Debian 12 as debootstrap makes it, in a temporary folder, from the mirror that apt uses here. There the
# package is installed with apt, which brings what it depends on, answers from a stored checkpoint with the bits that the
# build folder has, and is removed again without a trace. Needs root; the last line counts what was looked at.
set -eu
cd "$(dirname "$0")/.."
build=$PWD/${1:-build}
if [ "$(id -u)" != 0 ]; then
  echo "test-package: not root: debootstrap cannot make a system to try the package on" >&2
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
scripts/setup.sh build package
package=$(scripts/package.sh "${1:-build}")
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || :; rm -rf --one-file-system "$root"' EXIT
passed=0 failed=0
check() { # check NAME COMMAND...
  name=$1
  shift
  if "$@" >"$root.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAIL $name" && tail -n 15 "$root.log"
  fi
  rm -f "$root.log"
}
inside() { LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

mirror=$(apt-cache policy base-files | sed -n 's/.* \(http[^ ]*\) bookworm\/main.*/\1/p' | head -n 1)
for left in 2 1 0; do # a mirror may be out for a moment
  umount "$root/proc" "$root/sys" 2>/dev/null || :
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$build/package/debootstrap.log" 2>&1 && break
  [ $left != 0 ] || {
    tail -n 5 "$build/package/debootstrap.log" >&2
    echo "test-package: debootstrap could not make a system" >&2
    exit 1
  }
  sleep 10
done
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || :
mount -t proc proc "$root/proc" 2>/dev/null || :
cp "$package" "$root/tern.deb"
cp -r tests/golden/llama-4bit/model "$root/model"

check "apt installs it" inside apt-get -o Acquire::Retries=3 install -y --no-install-recommends /tern.deb
check "it runs" inside tern --version
check "its version is the build folder's" sh -c "chroot '$root' tern --version | head -n 1 | grep -qxF \"\$('$build/tern' --version | head -n 1)\""
check "doctor" inside tern doctor
inside tern logits /model --ids 1,2,3,4 --steps 4 --backend cpu --out /rows >/dev/null 2>&1 || :
"$build/tern" logits tests/golden/llama-4bit/model --ids 1,2,3,4 --steps 4 --backend cpu --out "$build/package/rows" >/dev/null
check "its bits are the build folder's" cmp "$root/rows" "$build/package/rows"
check "man pages" test -e "$root/usr/share/man/man1/tern-run.1.gz" -a -e "$root/usr/share/doc/tern/copyright"
check "completions" inside bash -n /usr/share/bash-completion/completions/tern
check "what it lacks is said in one line" sh -c "chroot '$root' tern run nothing hello 2>&1 | grep -c '^tern: error: ' | grep -qx 1"
check "apt removes it" inside apt-get purge -y tern
check "nothing of it is left" sh -c "! find '$root/usr' '$root/etc' | grep -iE '/(lib)?_?tern'"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
