#!/usr/bin/env bash
# test-pythons.sh [--short] [VERSION...]: run the tests on other versions of Python; without one, on 3.10, 3.12 and 3.13.
# An interpreter is python<version> on the PATH, or one of pyenv's. Each gets an environment of its own, in
# .venv/python/<version>, with the newest PySpark for it.
# --short: without Spark and Kafka.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh

readonly EXTRAS=spark,kafka,schema-registry,metrics,examples,dev
tests="not slow and not long and not kafka"
if [[ ${1:-} == --short ]]; then
    tests+=" and not spark"
    shift
fi
versions=("$@")
[[ ${#versions[@]} -gt 0 ]] || versions=(3.10 3.12 3.13)

failed=()
for version in "${versions[@]}"; do
    home=.venv/python/${version} found=
    for python in "python${version}" "${PYENV_ROOT:-${HOME}/.pyenv}/versions/${version}".*/bin/python; do
        if "${python}" -c "" 2>/dev/null; then # a launcher may be on the PATH and not run
            found=${python}
        fi
    done
    [[ -n ${found} ]] || stop "Python ${version} is not here: no python${version} on the PATH, and none of pyenv's."
    install() {
        .venv/bin/uv venv --quiet --clear --python "${found}" "${home}" &&
            uv_install "${home}/bin/python" "${EXTRAS}"
    }
    timed "making ${home}" install || stop "It failed."
    "${home}/bin/python" -c 'import sys, pyspark; print("Python", sys.version.split()[0], "PySpark", pyspark.__version__)'
    "${home}/bin/python" -m pytest -q --hypothesis-profile quick -m "${tests}" || failed+=("${version}")
done
[[ ${#failed[@]} -eq 0 ]] || stop "Failed: ${failed[*]}"
