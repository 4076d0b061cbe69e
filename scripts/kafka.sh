#!/usr/bin/env bash
# The jars of Kafka's broker (examples/kafka/pom.xml): silent if they are in var/kafka/jars, fetched by Maven if not.
# Installs Maven if it is missing and this may do so; one clear message if not.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh
source scripts/maven.sh

readonly DIRECTORY_OPTION=outputDirectory
build "the jars of Kafka's broker" var/kafka/jars examples/kafka/pom.xml -- \
    dependency:copy-dependencies -DincludeScope=runtime
