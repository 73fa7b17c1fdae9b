#!/usr/bin/env bash
# Describes a folder of images in one file of JSON lines and reads it in Python.
#   examples/captions.sh [FOLDER]
set -euo pipefail
out=${1:-out}/captions
mkdir -p "$out/images"

./run generate --prompt-file assets/prompts/demo.txt -s 1 --overwrite --output-dir "$out/images"
./run caption "$out/images" --anew -o "$out/captions.jsonl" --prune divprune --prune-rate 0.67
if command -v python3 >/dev/null; then
  python3 examples/read_captions.py "$out/captions.jsonl"
fi
