#!/usr/bin/env bash
# Generates an image, reads what it records, and generates it again in fewer passes.
#   examples/generate.sh [FOLDER]
set -euo pipefail
out=${1:-out}
mkdir -p "$out"
prompt="a large red shiny sphere and a small blue matte cube on a gray floor"

./run generate -p "$prompt" -s 7 --disable-metadata --overwrite -o "$out/plain.png"
./run generate -p "$prompt" -s 7 --disable-metadata --overwrite --decode gumbel -o "$out/gumbel.png"
cmp "$out/plain.png" "$out/gumbel.png"
echo "the same bytes"

# The record of an image repeats it; flags that are given win.
./run generate -p "$prompt" -s 7 --temp 0.8 --overwrite -o "$out/first.png"
./run generate --from-image "$out/first.png" -s 8 --overwrite -o "$out/second.png"
./run metadata "$out/second.png" | grep -E '^  (seed|temp):'
