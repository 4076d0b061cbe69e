#!/usr/bin/env bash
# The jars of Spark's own Kafka source (examples/kafka/connector/pom.xml): silent if they are in var/kafka-connector/jars,
# fetched by Maven if not. Installs Maven if it is missing and this may do so; one clear message if not.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh
source scripts/maven.sh

readonly DIRECTORY_OPTION=outputDirectory
build "the jars of Spark's Kafka source" var/kafka-connector/jars examples/kafka/connector/pom.xml -- \
    dependency:copy-dependencies -DexcludeTransitive=true
