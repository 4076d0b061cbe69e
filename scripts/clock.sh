# How long something takes, shown while it runs. Sourced, not run; works on a bare machine.
# On a terminal a line is redrawn in place every second, on standard error; it leaves nothing behind.

clock_from=0
clock_ticker=""

# clock_start TEXT: show it, with the seconds since now, until clock_stop.
clock_start() {
    clock_from=${SECONDS}
    clock_ticker=""
    if redraws; then
        tick "$1" &
        clock_ticker=$!
    fi
}

# clock_stop: take the line away.
clock_stop() {
    if [[ -n ${clock_ticker} ]]; then
        kill "${clock_ticker}" 2>/dev/null || true
        wait "${clock_ticker}" 2>/dev/null || true
        clock_ticker=""
        printf '\r\e[K' >&2
    fi
}

# took: the time since clock_start, as " (1 min 5 s)"; nothing if it was short.
took() {
    local seconds=$((SECONDS - clock_from))
    if ((seconds >= 60)); then
        printf ' (%d min %d s)' $((seconds / 60)) $((seconds % 60))
    elif ((seconds >= 2)); then
        printf ' (%d s)' "${seconds}"
    fi
}

# timed TEXT COMMAND...: run it. TEXT is printed at once, and with the time when it has ended; on a terminal only then.
timed() {
    local text=$1 status=0
    shift
    redraws || echo "${text}"
    clock_start "${text}"
    "$@" || status=$?
    clock_stop
    if redraws; then
        echo "${text}$(took)"
    elif ((SECONDS - clock_from >= 2)); then
        echo "  done$(took)"
    fi
    return "${status}"
}

# redraws: is standard error a terminal whose lines can be redrawn, and not that of a CI?
redraws() {
    [[ -t 2 && ${TERM:-dumb} != dumb && -z ${CI:-} ]]
}

# tick TEXT: redraw it every second, as long as the script runs.
tick() {
    local text=$1 columns seconds line
    while kill -0 $$ 2>/dev/null; do
        # Asked each time: the window may change. A line that is wider than the window could not be redrawn.
        columns=$(stty size <&2 2>/dev/null || true)
        columns=${columns##* }
        ((${columns:-0} > 0)) || columns=80
        seconds=$((SECONDS - clock_from))
        printf -v line '%d:%02d  %s' $((seconds / 60)) $((seconds % 60)) "${text}"
        printf '\r\e[K%s' "${line:0:columns-1}" >&2
        sleep 1 >/dev/null 2>&1 || return 0
    done
}
