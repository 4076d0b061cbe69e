#!/usr/bin/env bash
# quietly.sh NAME COMMAND...: run it; one line if it succeeds, all it said if it fails.
set -euo pipefail
source "${BASH_SOURCE[0]%/*}/clock.sh"

name=$1
shift
clock_start "${name}"
if output=$("$@" 2>&1); then
    clock_stop
    echo "ok      ${name}$(took)"
else
    status=$?
    clock_stop
    printf '%s\n' "${output}" "FAILED  ${name}$(took)" >&2
    exit "${status}"
fi
