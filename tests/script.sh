#!/bin/sh
# Runs a test script with the system's Python or the reference's: script.sh system|oracle SCRIPT [ARGS]
set -eu
kind=$1
shift
python=python3
if [ "$kind" = oracle ]; then
  python=$TERN_BUILD/oracle/bin/python
  if [ ! -x "$python" ]; then
    echo "SKIP all: the reference is not installed here (scripts/oracle.sh says why)"
    exit 77
  fi
fi
exec env PYTHONPATH="$(dirname "$0")${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 "$python" "$@"
