#!/usr/bin/env bash
# Generates a video, then goes on from its last frames.
#   examples/video.sh [FOLDER]
set -euo pipefail
out=${1:-out}
mkdir -p "$out"
prompt="a large red shiny sphere moving left on a gray floor"

./run video -p "$prompt" -s 7 --overwrite -o "$out/first.mkv"
./run video -p "$prompt" -s 8 --overwrite --first-frames "$out/first.mkv" --frames 24 -o "$out/longer.mkv"
