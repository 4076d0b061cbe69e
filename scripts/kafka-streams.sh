#!/usr/bin/env bash
# Kafka Streams and the benchmark's application of it (benchmarks/kafka_streams), in var/kafka-streams/jars: silent if they
# are there, built by Maven if not. Compiling needs a JDK. One clear message if something is missing.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh
source scripts/maven.sh

if ! command -v javac >/dev/null; then
    stop "The benchmark's Kafka Streams application is compiled by javac; found none on the PATH." \
        "Install a JDK, on Debian or Ubuntu: sudo apt-get install openjdk-17-jdk-headless"
fi
readonly DIRECTORY_OPTION=benchmark.directory
readonly HERE=benchmarks/kafka_streams
build "the jars of Kafka Streams" var/kafka-streams/jars "${HERE}/pom.xml" "${HERE}"/*.java -- \
    compiler:compile dependency:copy-dependencies
