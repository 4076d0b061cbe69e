#!/usr/bin/env bash
# Spark needs Java 17 or newer: silent if it is there, installed if this may do so, one clear message if not.
# Looks where Spark looks: $JAVA_HOME/bin/java if JAVA_HOME is set, else java on the PATH.
set -euo pipefail
source "${BASH_SOURCE[0]%/*}/lib.sh"

readonly NEEDED=17
readonly PACKAGE=openjdk-17-jre-headless
readonly PACKAGE_NEWER=openjdk-21-jre-headless # Debian 13 has no 17 any more

java_command() {
    if [[ -n ${JAVA_HOME:-} ]]; then
        echo "${JAVA_HOME}/bin/java"
    else
        command -v java || true
    fi
}

# java_version COMMAND: its major version (8, 11, 17, ...), or nothing if it does not run.
java_version() {
    local output
    output=$("$1" -version 2>&1) || return 0
    if [[ ${output} =~ version\ \"(1\.)?([0-9]+) ]]; then
        echo "${BASH_REMATCH[2]}"
    fi
}

# fits: is there a Java that will do? Leaves what was found in ${found}.
fits() {
    local java version
    hash -r
    java=$(java_command)
    version=$([[ -n ${java} ]] && java_version "${java}" || true)
    if [[ -z ${version} ]]; then
        found="found none${JAVA_HOME:+ at JAVA_HOME=${JAVA_HOME}}"
        return 1
    fi
    found="found Java ${version} (${java})"
    ((version >= NEEDED))
}

found=""
fits && exit 0
# A JAVA_HOME that points elsewhere is the user's word; a package would not change it.
if [[ -z ${JAVA_HOME:-} ]] && can_apt; then
    { apt_install "${PACKAGE}" 2>/dev/null || apt_install "${PACKAGE_NEWER}"; } && fits && exit 0
fi
stop "Spark needs Java ${NEEDED} or newer; ${found}." \
    "Install it, on Debian or Ubuntu: sudo apt-get install ${PACKAGE}   (or ${PACKAGE_NEWER})" \
    "or set JAVA_HOME to the directory of a newer one."
