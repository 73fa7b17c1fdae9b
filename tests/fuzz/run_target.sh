#!/usr/bin/env bash
# run_target.sh PROGRAM EXECUTIONS [MUTANT...]
# Fuzzes from the program's own seeds, with a fixed seed of its random numbers: first as it is, where
# nothing may be found, then PROGRAM-MUTANT of each mutant, where something must be found within ten
# times as many executions (it stops at the find, most come within hundreds).
# Prints executions and edges. Exit status 1 if any of that is not so.
set -euo pipefail
program=$1
executions=$2
shift 2
name=$(basename "$program")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# fuzz PROGRAM EXECUTIONS: runs into $work/log; its exit status.
fuzz() {
  rm -rf "$work/corpus"
  mkdir "$work/corpus"
  TESSERA_FUZZ_SEEDS="$work/corpus" "$program"
  "$1" -seed=7 -runs="$2" -max_len=4096 -mutate_depth=3 \
    -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$work/" "$work/corpus" \
    >"$work/log" 2>&1
}
executed() { sed -n 's/^stat::number_of_executed_units: *//p' "$work/log" | tail -n 1; }
edges() { grep -oE 'cov: [0-9]+' "$work/log" | tail -n 1 | cut -d' ' -f2; }
complain() {
  echo "$name: $1"
  tail -n 60 "$work/log"
  for input in "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-*; do
    if [ -e "$input" ]; then
      echo "input, base64:"
      base64 "$input"
    fi
  done
  failures=1
}

start=$SECONDS
if ! fuzz "$program" "$executions"; then
  complain "found a defect"
elif [ "$(executed)" -lt "$executions" ]; then
  complain "ran $(executed) of $executions executions"
else
  echo "$name: $(executed) executions, $(edges) edges, nothing found, $((SECONDS - start)) s"
fi
for mutant in "$@"; do
  if [ ! -x "$program-$mutant" ]; then
    : >"$work/log"
    complain "there is no $program-$mutant"
    continue
  fi
  if fuzz "$program-$mutant" $((10 * executions)); then
    complain "did not find the mutant $mutant in $(executed) executions"
  elif ! grep -qE 'oracle failed|ERROR: AddressSanitizer|runtime error' "$work/log"; then
    complain "stopped for another reason than the mutant $mutant"
  else
    how=$(grep -oE 'oracle failed: .*|AddressSanitizer: [a-z-]+|runtime error: .*' "$work/log" |
          head -n 1)
    echo "$name: mutant $mutant found after $(executed) executions ($how)"
  fi
  rm -f "$work"/crash-*
done
exit "$failures"
