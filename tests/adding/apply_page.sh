#!/usr/bin/env bash
# Adds what pages of docs/ add: copies the files that their ```diff blocks name out of a source tree
# and applies the blocks to the copies, page by page. NAME.diff has the blocks of NAME.md, NAME.txt
# lists their files.
#   apply_page.sh SOURCE_TREE OUT PAGE...
set -euo pipefail
source=$1 out=$2
shift 2
rm -rf "$out"
mkdir -p "$out"
for page in "$@"; do
  name=$(basename "$page" .md)
  awk '/^```diff$/ {on = 1; next} /^```$/ {on = 0} on' "$page" > "$out/$name.diff"
  sed -n 's,^+++ b/,,p' "$out/$name.diff" > "$out/$name.txt"
  while read -r file; do
    mkdir -p "$out/$(dirname "$file")"
    if [ -e "$source/$file" ] && [ ! -e "$out/$file" ]; then cp "$source/$file" "$out/$file"; fi
  done < "$out/$name.txt"
  # The build tree may lie in a repository, whose paths would be taken for these.
  (cd "$out" && GIT_CEILING_DIRECTORIES=$(dirname "$PWD") git apply "$name.diff")
done
