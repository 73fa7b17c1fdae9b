#!/usr/bin/env bash
# Runs the compiler call that it is given and keeps what ptxas says about kernels in OBJECT.ptxas,
# OBJECT being the argument behind -o. Everything else that the compiler says goes to stderr.
set -uo pipefail
object=''
previous=''
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"

said=$(mktemp "$object.XXXXXX") || exit 1
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
about='^ptxas info|^ +[0-9]+ bytes stack frame|^ *Function properties'
grep -vE "$about" "$said" >&2
if [ "$status" -eq 0 ]; then
  grep -E "$about" "$said" >"$object.ptxas" || : >"$object.ptxas"
fi
exit "$status"
