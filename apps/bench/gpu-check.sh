#!/usr/bin/env bash
# Checks and measures a CUDA device in one go: ./gpu-check.sh [--out FILE] [--device NAME] [--git COMMIT]
# [--tests FOLDER] [--bin FOLDER] [--minutes N] [--slow N] [--quick]
#
# Beside this script, or in --bin FOLDER: tessera-gpu-check, and gpu_peers.py. --tests FOLDER holds
# test programs that ran on the CPU already; they run here on the device, and where one fails nothing
# is measured: figures of wrong code are none. Every phase has its own time and appends JSON lines to
# FILE; what a time limit cuts off costs that phase alone, and nothing begins when --minutes (25) are
# over: so the sanitizer comes last. The settings of the card are left alone.
# Exit: 0 measured, 1 a test failed or a phase broke off, 2 wrong usage, 3 no device.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here out=gpu-check.jsonl device=cuda:0 git='' tests='' scale=1 minutes=25
more=() peers=()

say() { printf '%s\n' "$*"; }
usage() { say "usage: gpu-check.sh [--bin FOLDER] [--out FILE] [--device NAME] [--git COMMIT] [--tests FOLDER] [--minutes N] [--slow N] [--quick]" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case "$1" in
    --quick) more+=(--quick --models test:tiny); peers+=(--quick); shift; continue ;;
    --bin | --out | --device | --git | --tests | --minutes | --slow) [ $# -ge 2 ] || usage ;;
    *) usage ;;
  esac
  case "$1" in
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --device) device=$2 ;;
    --git) git=$2 ;;
    --tests) tests=$2 ;;
    --minutes) minutes=$2 ;;
    --slow) scale=$2 ;;  # every time limit, that many times
  esac
  shift 2
done
check=$bin/tessera-gpu-check
[ -x "$check" ] || { say "no $check" >&2; exit 2; }
[ -n "$git" ] && more+=(--git "$git")

broken=0 end=$((SECONDS + minutes * 60 * scale))
# phase NAME SECONDS COMMAND...: says how it ended; what broke off does not stop the next one.
phase() {
  local name=$1 limit=$(($2 * scale)) began=$SECONDS status=0 left=$((end - SECONDS))
  shift 2
  if [ "$left" -lt 5 ]; then say "--- $name: no time left"; broken=1; return 124; fi
  [ "$limit" -le "$left" ] || limit=$left
  say "--- $name"
  timeout --kill-after=5 "$limit" "$@" || status=$?
  case $status in
    0) say "--- $name: done in $((SECONDS - began)) s" ;;
    124 | 137) say "--- $name: cut off after $limit s"; broken=1 ;;
    *) say "--- $name: exit $status"; broken=1 ;;
  esac
  return "$status"
}
measure() { phase "$1" "$2" "$check" "$1" --device "$device" --out "$out" "${more[@]}"; }

timeout 60 "$check" device --device "$device"
status=$?
[ "$status" -eq 0 ] || exit "$status"

measure probe 20
say "--- build"
if command -v nvcc >/dev/null; then nvcc --version | tail -n 2; else say "no nvcc here: what was carried is measured"; fi

# Test programs either have cases of a CUDA device or run as a whole on the one that this names. Of
# those only what compares with a reference: cases of the CPU's own count its allocations and threads.
export TESSERA_TEST_DEVICE=cuda
cases='*cuda*:*Cuda*:*Golden*:*Parity*'

# Whether a program ran a case here; one that skipped everything proves nothing.
ran_here() {
  local log=$1
  grep -q '\[  PASSED  \] [1-9]' "$log"
}
if [ -n "$tests" ]; then
  proved=0
  for program in "$tests"/*_test; do
    [ -x "$program" ] || continue
    log=$(mktemp)
    if ! phase "parity: $(basename "$program")" 90 "$program" --gtest_filter="$cases" >"$log"; then
      cat "$log"
      say "a test failed on this device: nothing is measured"
      exit 1
    fi
    if ran_here "$log"; then proved=$((proved + 1)); else say "$(basename "$program"): no case of a CUDA device"; fi
    tail -n 1 "$log"
    rm -f "$log"
  done
  if [ "$proved" -eq 0 ]; then say "no test ran on this device: nothing is measured"; exit 1; fi
else
  say "--- parity: no tests were carried"
fi

# What everything else is explained by comes first, what is compared with it last.
measure macro 240
measure micro 240
measure law 120
measure image 240
measure prefill 90

say "--- peers"
if command -v python3 >/dev/null && [ -f "$here/gpu_peers.py" ]; then
  phase peers 480 python3 "$here/gpu_peers.py" --out "$out" --device "$device" "${peers[@]}"
else
  say "no python3 or no gpu_peers.py: no peers"
fi

if command -v compute-sanitizer >/dev/null && [ -n "$tests" ]; then
  for tool in memcheck racecheck synccheck; do
    for program in "$tests"/*_test; do
      if [ $((end - SECONDS)) -lt $((120 * scale)) ]; then say "--- $tool: no time left"; break 2; fi
      phase "$tool: $(basename "$program")" 120 compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "$program" --gtest_brief=1 --gtest_filter="$cases"
    done
  done
else
  say "--- sanitizer: no compute-sanitizer or no tests"
fi

say "--- table"
"$check" table --out "$out"
exit "$broken"
