# Words and deeds the set-up scripts share. Sourced, not run; builtins only, so that it works on a bare machine.
source "${BASH_SOURCE[0]%/*}/clock.sh"

# stop MESSAGE...: say it, one line for each argument, and end with an error.
stop() {
    printf '%s\n' "$@" >&2
    exit 1
}

# uv_install PYTHON EXTRAS: install this project and these extras of it for an interpreter, with the uv of .venv.
# PySpark comes as a source archive, mostly of jars, 480 MB unpacked. Packing its wheel without compression takes a third
# off the time of a set-up. --no-build-isolation would take nothing off: the project is built while PySpark is.
uv_install() {
    .venv/bin/uv pip install --quiet --native-tls --python "$1" \
        --config-settings-package "pyspark:--build-option=--compression=stored" --editable ".[$2]"
}

# can_apt: may this script install Debian packages here?
can_apt() {
    [[ ${EUID} -eq 0 ]] && command -v apt-get >/dev/null
}

# apt_install PACKAGE...: install them; the output is shown only if that fails.
apt_install() {
    local output
    if ! timed "installing $* (apt-get)" apt_get "$@"; then
        printf '%s\n' "${output}" >&2
        return 1
    fi
}
apt_get() {
    output=$(DEBIAN_FRONTEND=noninteractive apt-get update -qq 2>&1 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" 2>&1)
}
