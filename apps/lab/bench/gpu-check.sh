#!/usr/bin/env bash
# Checks and measures a CUDA device in one go: ./gpu-check.sh [--out FILE] [--device NAME] [--git COMMIT]
# [--bin FOLDER] [--tests FOLDER] [--sources FOLDER] [--phases LIST] [--minutes N] [--slow N] [--quick]
#
# tessera-lab lies beside this script or in --bin FOLDER, gpu_peers.py beside this script
# (gpu-bundle.sh packs all of it). --tests FOLDER holds test programs and device_tests.txt, the list
# of their cases of a CUDA device; where one fails nothing after it is measured: figures of wrong
# code are none. --sources: where the recorded files lie that they read. Every phase has its own time
# and appends JSON lines to FILE; what a time limit cuts off costs that phase alone, and nothing
# begins when --minutes (25) are over. --phases probe,parity,macro,micro,law,image,prefill,peers,
# memcheck,racecheck,synccheck: some of them alone, in this order. The settings of the card are left
# alone.
# Exit: 0 measured, 1 a test failed or a phase broke off, 2 wrong usage, 3 no device.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here out=gpu-check.jsonl device=cuda:0 git='' tests='' sources='' scale=1 minutes=25
phases=probe,parity,macro,micro,law,image,prefill,peers,memcheck,racecheck,synccheck
more=() peers=()

say() { printf '%s\n' "$*"; }
usage() {
  say "usage: gpu-check.sh [--bin FOLDER] [--out FILE] [--device NAME] [--git COMMIT] [--tests FOLDER]" \
    "[--sources FOLDER] [--phases LIST] [--minutes N] [--slow N] [--quick]" >&2
  exit 2
}
all_phases=,$phases,

while [ $# -gt 0 ]; do
  case "$1" in
    --quick) more+=(--quick --models test:tiny); peers+=(--quick); shift; continue ;;
    --bin | --out | --device | --git | --tests | --sources | --phases | --minutes | --slow)
      [ $# -ge 2 ] || usage
      ;;
    *) usage ;;
  esac
  case "$1" in
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --device) device=$2 ;;
    --git) git=$2 ;;
    --tests) tests=$2 ;;
    --sources) sources=$2 ;;
    --phases) phases=$2 ;;
    --minutes) minutes=$2 ;;
    --slow) scale=$2 ;;  # every time limit, that many times
  esac
  shift 2
done
[[ $minutes =~ ^[0-9]+$ && $scale =~ ^[1-9][0-9]*$ ]] || usage
for name in ${phases//,/ }; do [[ $all_phases == *",$name,"* ]] || usage; done
lab=$bin/tessera-lab
list=$tests/device_tests.txt
[ -z "$tests" ] || [ -f "$list" ] || { say "no $list" >&2; exit 2; }
[ -x "$lab" ] || { say "no $lab" >&2; exit 2; }
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
wanted() { [[ ,$phases, == *",$1,"* ]]; }
measure() {
  wanted "$1" || return 0
  phase "$1" "$2" "$lab" gpu-check "$1" --device "$device" --out "$out" "${more[@]}"
}

timeout 60 "$lab" gpu-check device --device "$device"
case $? in
  0) ;;
  3) exit 3 ;;
  *) say "$lab does not start here: nothing was measured" >&2; exit 1 ;;
esac

measure probe 20

# Test programs open the first device that they see. Golden tests run as a whole on the one that this
# names; verified logits rows are a million.
export TESSERA_TEST_DEVICE=cuda TESSERA_LONG=1
[ -z "$sources" ] && [ -d "$here/sources" ] && sources=$here/sources
[ -z "$sources" ] || export TESSERA_TEST_SOURCES=$sources
index=${device#cuda:}
[[ $index =~ ^[0-9]+$ ]] && seen=(env CUDA_VISIBLE_DEVICES="$index") || seen=(env)

# Whether a program ran a case here; one that skipped everything proves nothing.
ran_here() {
  local log=$1
  grep -q '\[  PASSED  \] [1-9]' "$log"
}
stop_here() {
  say "$1: nothing after it is measured"
  exit 1
}
parity() {
  local proved=0 program filter limit log status
  while read -r -u 3 program filter limit; do
    log=$(mktemp) status=0 limit=${limit:-90}
    phase "parity: $program" "$limit" "${seen[@]}" "$tests/$program" --gtest_filter="$filter" >"$log" || status=$?
    grep -e '^--- ' "$log"
    case $status in
      0 | 77) ;;
      124 | 137) say "$program proves nothing in this time"; rm -f "$log"; continue ;;
      126 | 127) grep -v '^--- ' "$log"; stop_here "$program does not start on this machine" ;;
      *) grep -v '^--- ' "$log"; stop_here "a test failed on this device" ;;
    esac
    if ran_here "$log"; then proved=$((proved + 1)); else say "$program: no case of a CUDA device"; fi
    grep -v '^--- ' "$log" | tail -n 1
    rm -f "$log"
  done 3<"$list"
  say "parity: $proved test programs had cases on this device"
  [ "$proved" -gt 0 ] || stop_here "no test ran on this device"
}
if wanted parity; then
  if [ -n "$tests" ]; then parity; else say "--- parity: no tests were carried"; fi
fi

# What everything else is explained by comes first, what is compared with it last.
measure macro 240
measure micro 240
measure law 120
measure image 240
measure prefill 90

if wanted peers; then
  if command -v python3 >/dev/null && [ -f "$here/gpu_peers.py" ]; then
    phase peers 480 python3 "$here/gpu_peers.py" --out "$out" --device "$device" "${peers[@]}"
  else
    say "--- peers: no python3 or no gpu_peers.py"
  fi
fi

# Whole images of the made-up model, verified logits rows and every kernel at small shapes.
unset TESSERA_LONG
for tool in memcheck racecheck synccheck; do
  wanted "$tool" || continue
  if [ -z "$tests" ] || ! command -v compute-sanitizer >/dev/null; then
    say "--- $tool: no compute-sanitizer or no tests"
    continue
  fi
  while read -r -u 3 program filter limit; do
    limit=${limit:-90}
    [ "$limit" -gt 120 ] || limit=120
    if [ $((end - SECONDS)) -lt 30 ]; then say "--- $tool: no time left"; broken=1; break; fi
    phase "$tool: $program" "$limit" "${seen[@]}" compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$tests/$program" --gtest_brief=1 --gtest_filter="$filter"
  done 3<"$list"
done

say "--- table"
"$lab" gpu-check table --out "$out"
exit "$broken"
