#!/usr/bin/env bash
# quietly.sh NAME COMMAND...: run it; one line if it succeeds, all it said if it fails.
set -euo pipefail

name=$1
shift
if output=$("$@" 2>&1); then
    echo "ok      ${name}"
else
    status=$?
    printf '%s\n' "${output}" "FAILED  ${name}" >&2
    exit "${status}"
fi
