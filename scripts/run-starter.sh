#!/bin/sh
# The starter model from nothing to an answer on stdout: run-starter.sh [--bench]
#
# Installs, builds, fetches and imports what is not there yet, each step quiet when it is done. TERN_PROMPT is the prompt.
set -eu
cd "$(dirname "$0")/.."

scripts/setup.sh build test
# The program alone, and the GPU's backend where there is a GPU: the first answer comes minutes sooner.
targets="tern"
[ ! -e /dev/nvidiactl ] || targets="tern tern_cuda"
TERN_TARGETS=$targets scripts/build.sh build
model=$(scripts/model.sh smollm2)
if [ "${1:-}" = --bench ]; then
  exec build/tern bench "$model"
fi
[ -n "${TERN_PROMPT:-}" ] || TERN_PROMPT="In two sentences, why is the sky blue?"
# From stdin, so that a prompt which begins with a dash is a prompt too.
printf '%s' "$TERN_PROMPT" | build/tern run "$model" - --temp 0 --max-tokens 200
