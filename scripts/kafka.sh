#!/usr/bin/env bash
# The jars of Kafka's broker (examples/kafka/pom.xml): silent if they are in var/kafka/jars, fetched by Maven if not.
# Installs Maven if it is missing and this may do so; one clear message if not.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh

readonly POM=examples/kafka/pom.xml
readonly CACHE=var/kafka
readonly JARS=${CACHE}/jars # with the pom that they were fetched for
readonly LOG=${CACHE}/maven.log

fetched() {
    [[ -f ${JARS}/pom.xml && $(<"${JARS}/pom.xml") == "$(<"${POM}")" ]]
}

has_maven() {
    hash -r
    command -v mvn >/dev/null
}

fetched && exit 0
if ! has_maven && ! { can_apt && apt_install maven && has_maven; }; then
    stop "The jars of Kafka's broker are fetched by Maven; found no mvn on the PATH." \
        "Install it, on Debian or Ubuntu: sudo apt-get install maven"
fi

mkdir -p "${CACHE}"
exec 9>"${CACHE}/lock"
flock 9 # of two that fetch at once, the second finds the jars
fetched && exit 0
echo "fetching the jars of Kafka's broker into ${JARS} (a minute the first time)"
rm -rf "${JARS}" "${JARS}.part"
if ! mvn --batch-mode --file "${POM}" dependency:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="${PWD}/${JARS}.part" >"${LOG}" 2>&1; then
    tail -n 20 "${LOG}" >&2
    stop "Maven could not fetch the jars of Kafka's broker; the whole output is in ${LOG}."
fi
cp "${POM}" "${JARS}.part/pom.xml"
mv "${JARS}.part" "${JARS}"
