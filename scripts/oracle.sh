#!/bin/sh
# Makes the reference's private Python environment in BUILD/oracle: oracle.sh [BUILD]
#
# The pins are tests/oracle/requirements.txt. Quiet when it is there already; exit 1 with the reason when it cannot be.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build}/oracle
pins=tests/oracle/requirements.txt
want=$(cksum <$pins)
[ "$(cat "$dir/.pins" 2>/dev/null)" != "$want" ] || exit 0

fail() { echo "oracle: $1" >&2; exit 1; }
python=""
for p in python3 /usr/bin/python3; do
  if "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then python=$p; break; fi
done
[ -n "$python" ] || fail "no Python 3.10 or later with venv: install python3-venv"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "the pinned reference runs on Linux x86-64 only"

echo "oracle: installing the pinned reference into $dir" >&2
rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m venv "$dir" >"$log" 2>&1 || { tail -n 5 "$log" >&2; fail "python -m venv failed"; }
"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --retries 10 --timeout 60 -r $pins >"$log" 2>&1 ||
  { tail -n 5 "$log" >&2; rm -rf "$dir"; fail "pip could not install $pins: is there a network?"; }
"$dir/bin/python" -c 'import mlx.core, mlx_lm' 2>"$log" ||
  { tail -n 5 "$log" >&2; rm -rf "$dir"; fail "the reference does not import"; }
echo "$want" >"$dir/.pins"
