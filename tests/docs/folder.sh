#!/usr/bin/env bash
# Fills the current folder with what the commands of a page find there: ./run without its set-up, the
# programs by name, and of photos/, photo.png, start.png and film.mkv what the page names.
#   folder.sh SOURCE_TREE TESSERA_PROGRAM PAGE
set -euo pipefail
source=$1 program=$2 page=$3
bin=.page/bin
mkdir -p cmake "$bin"
cp "$source/run" .
ln -s "$source/assets" "$source/examples" .
cat > cmake/setup.sh <<END
say() { :; }
install_packages() { :; }
build_preset() { echo "$PWD/.page"; }
END
for name in "$(dirname "$program")"/tessera*; do ln -s "$name" "$bin/"; done
# Until the laboratory is a program of its own, its commands are those of tessera.
if [ ! -e "$bin/tessera-lab" ]; then
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$program" > "$bin/tessera-lab"
  chmod +x "$bin/tessera-lab"
fi
if grep -qE 'photo|start\.png' "$page"; then
  "$bin/tessera-lab" scene -b 3 --split val -s 1 --size 96 --output-dir photos >/dev/null
  cp photos/scene_0000.png photo.png
  cp photos/scene_0001.png start.png
fi
if grep -q 'film\.mkv' "$page"; then
  "$program" video -p "a large red shiny sphere moving left on a gray floor" -s 1 -o film.mkv >/dev/null
fi
