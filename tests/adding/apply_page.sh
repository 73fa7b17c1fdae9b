#!/usr/bin/env bash
# Adds what a page of docs/ adds: copies the files that its ```diff blocks name out of a source tree
# and applies the blocks to the copies. `added.txt` beside them lists the files.
#   apply_page.sh PAGE SOURCE_TREE OUT
set -euo pipefail
page=$1 source=$2 out=$3
rm -rf "$out"
mkdir -p "$out"
awk '/^```diff$/ {on = 1; next} /^```$/ {on = 0} on' "$page" > "$out/page.diff"
sed -n 's,^+++ b/,,p' "$out/page.diff" > "$out/added.txt"
while read -r file; do
  mkdir -p "$out/$(dirname "$file")"
  if [ -e "$source/$file" ]; then cp "$source/$file" "$out/$file"; fi
done < "$out/added.txt"
# The build tree may lie in a repository, whose paths would be taken for these.
cd "$out"
GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply page.diff
