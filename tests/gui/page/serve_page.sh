#!/usr/bin/env bash
# serve_page.sh PROGRAM: the page of its server in Chromium, and 77 where that cannot be.
for program in python3 chromium; do
  command -v "$program" >/dev/null && continue
  echo "skipped: $program is not installed"
  exit 77
done
exec python3 -B "$(dirname "$0")/serve_page_test.py" "$1"
