#!/usr/bin/env bash
# What a machine with a CUDA device needs to be checked, in one archive: gpu-bundle.sh BUILD OUT.tar.xz
#
# BUILD is a build folder with tests and CUDA (preset ci). The archive unpacks to a folder `gpu`:
# tessera-lab, gpu-check.sh and gpu_peers.py, the test programs that have cases of a CUDA
# device with their list, and the recorded files that these read. There:
#   gpu/gpu-check.sh --tests gpu/tests --out gpu.jsonl
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(cd "$here/../../.." && pwd)
if [ $# -ne 2 ]; then echo "usage: gpu-bundle.sh BUILD OUT.tar.xz" >&2; exit 2; fi
build=$1 out=$2
if [ ! -f "$build/device_tests.txt" ] || [ ! -x "$build/bin/tessera-lab" ]; then
  echo "no device_tests.txt or no tessera-lab in $build: configure it with tests and CUDA, and build it" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/gpu/tests" "$work/gpu/sources/tests" "$work/gpu/sources/assets/models"
cp "$here/gpu-check.sh" "$here/gpu_peers.py" "$build/bin/tessera-lab" "$work/gpu/"
cp "$build/device_tests.txt" "$work/gpu/tests/"
for program in $(cut -d " " -f 1 "$build/device_tests.txt" | sort -u); do cp "$build/bin/$program" "$work/gpu/tests/"; done
simulated=$build/tests/support/simt/libsimulated_device.so
[ ! -f "$simulated" ] || cp "$simulated" "$work/gpu/tests/"
strip "$work/gpu/tessera-lab" "$work"/gpu/tests/*_tests
cp -r "$source/tests/golden" "$work/gpu/sources/tests/"
cp -r "$source/assets/models/tabletop-judge" "$work/gpu/sources/assets/models/"
# Programs share most of their code: a window wide enough sees it.
tar -C "$work" -cf - gpu | xz -T0 -6 --lzma2=preset=6,dict=256MiB >"$out"
echo "$out: $(du -h "$out" | cut -f1), $(cut -d " " -f 1 "$build/device_tests.txt" | sort -u | wc -l) test programs"
