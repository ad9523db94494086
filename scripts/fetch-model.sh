#!/bin/sh
# Fetches one of the real test models as a GGUF file: fetch-model.sh NAME, prints its path; without NAME, the names.
#
# Quiet, and done in milliseconds, when the file is there already. The table and the work are in fetch_model.py.
set -eu
cd "$(dirname "$0")/.."
command -v python3 >/dev/null 2>&1 || { echo "fetch-model: python3 is missing: run scripts/setup.sh python" >&2; exit 1; }
exec env PYTHONDONTWRITEBYTECODE=1 python3 scripts/fetch_model.py "$@"
