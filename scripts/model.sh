#!/bin/sh
# Fetches one of the real test models and imports it: model.sh NAME, prints its folder under build/models
#
# Quiet when it is there already. An interrupted import leaves nothing, so the folder's config.json means a whole model.
set -eu
cd "$(dirname "$0")/.."
name=$1
dir=build/models/$name

if [ ! -f "$dir/config.json" ]; then
  scripts/setup.sh python
  gguf=$(scripts/fetch-model.sh "$name")
  [ -x build/tern ] || { echo "model: build/tern is missing: run make first" >&2; exit 1; }
  mkdir -p build/models
  echo "model: importing $name into $dir" >&2
  build/tern import "$gguf" "$dir" >&2
fi
echo "$dir"
