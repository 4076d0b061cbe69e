#!/usr/bin/env bash
# setup.sh [EXTRAS]: makes .venv with this project and these extras of it, by default all. Quiet unless something fails; safe to run again.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh

readonly VENV=.venv
readonly LOG=${VENV}/setup.log
readonly EXTRAS=${1:-spark,kafka,schema-registry,metrics,examples,plots,docs,dev}
readonly UV="uv>=0.9,<1"

# usable PYTHON: runs, is new enough, and can make an environment with pip in it.
usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
makes_venvs() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    local name with_venv=""
    # A launcher can be on the PATH and still not run, so each is tried.
    for name in python3.13 python3.12 python3.11 python3; do
        if command -v "${name}" >/dev/null && usable "${name}"; then
            makes_venvs "${name}" && { echo "${name}"; return; }
            with_venv=${with_venv:-${name}}
        fi
    done
    echo "${with_venv}"
}

if [[ ! -x ${VENV}/bin/python ]] || ! usable "${VENV}/bin/python"; then
    python=$(find_python)
    if [[ -z ${python} ]]; then
        stop "Python 3.11 or newer is needed; none of python3.13, python3.12, python3.11, python3 is one." \
            "Install it, on Debian 12 or Ubuntu 24.04 and later: sudo apt-get install python3 python3-venv"
    fi
    if ! makes_venvs "${python}"; then
        package=$("${python}" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        { can_apt && apt_install "${package}" && makes_venvs "${python}"; } ||
            stop "${python} cannot make virtual environments." \
                "Install what is missing, on Debian or Ubuntu: sudo apt-get install ${package}"
    fi
    timed "making ${VENV} with $("${python}" --version)" "${python}" -m venv --clear "${VENV}"
fi

# uv installs in parallel. Where it cannot be had, or cannot reach what pip is configured for, pip does it.
with_uv() {
    "${VENV}/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "${UV}" &&
        uv_install "${VENV}/bin/python" "${EXTRAS}"
}
with_pip() {
    "${VENV}/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --editable ".[${EXTRAS}]"
}

install() {
    { with_uv || with_pip; } >"${LOG}" 2>&1
}

if ! timed "installing dependencies into ${VENV}, a minute or two the first time" install; then
    tail -n 30 "${LOG}" >&2
    stop "Installing the dependencies failed; the whole output is in ${LOG}."
fi
