#!/usr/bin/env bash
# Runs a job file, runs it again (nothing is left to do), and merges its records.
#   examples/batch.sh [FOLDER]
set -euo pipefail
out=${1:-out}/batch

./run batch examples/job.jsonl --output-dir "$out" --batch-size 2
./run batch examples/job.jsonl --output-dir "$out" --batch-size 2
./run batch status "$out"
./run batch merge "$out"
cat "$out/results.jsonl"
