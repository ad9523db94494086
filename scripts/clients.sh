#!/bin/sh
# Installs the official client packages that tests/server drives the server with: clients.sh [BUILD]
#
# They go into an environment of their own, BUILD/clients. Without it those tests are skipped, by name.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ -x "$build/clients/bin/python" ] || python3 -m venv "$build/clients"
"$build/clients/bin/python" -c 'import anthropic, openai' 2>/dev/null || "$build/clients/bin/pip" install -q anthropic openai
