#!/bin/sh
# Installs the official client packages that tests/server drives the server with, and schemathesis, which makes requests
# up from /openapi.json: clients.sh [BUILD]
#
# They go into an environment of their own, BUILD/clients. Without it those tests are skipped, by name.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ -x "$build/clients/bin/python" ] || python3 -m venv "$build/clients"
"$build/clients/bin/python" -c 'import anthropic, ollama, openai, schemathesis' 2>/dev/null ||
  "$build/clients/bin/pip" install -q --retries 10 --timeout 60 anthropic==2.14.0 ollama==0.6.3 openai==3.57.0 schemathesis==4.32.5
