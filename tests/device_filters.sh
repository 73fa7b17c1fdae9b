#!/usr/bin/env bash
# device_filters.sh BIN LIST: every pattern of LIST (lines "program filter seconds") names a case of its
# program in BIN. A pattern that names none, after a case got another name, would test nothing for ever.
set -euo pipefail
bin=$1 list=$2 missing=0 patterns=0
while read -r program filter _; do
  mapfile -d : -t wanted < <(printf '%s' "${filter%%-*}")
  for pattern in "${wanted[@]}"; do
    patterns=$((patterns + 1))
    if ! "$bin/$program" --gtest_list_tests --gtest_filter="$pattern" | grep -c '^  ' >/dev/null; then
      echo "$program has no case named $pattern"
      missing=1
    fi
  done
done <"$list"
echo "$patterns patterns"
[ "$patterns" -gt 0 ] && exit "$missing"
