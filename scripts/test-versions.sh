#!/usr/bin/env bash
# test-versions.sh [--short] [VERSION...]: run the tests with Spark on other versions of PySpark; without one, on all.
# Each version is installed beside the environment, into .venv/spark/<version>, when it is first needed.
# --short: a few tests that run placed state and steering as a whole.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh

readonly ALL=(3.5.9 4.0.5 4.1.4 4.2.1 4.3.0)
readonly PYTHON=.venv/bin/python

# Without a session, test_check_types.py has types that older versions lack.
tests=(tests/spark tests/examples tests/golden --ignore=tests/spark/test_check_types.py)
short=
if [[ ${1:-} == --short ]]; then
    tests=(tests/spark/test_placed_stream.py tests/spark/steering/test_with_spark.py)
    short=yes
    shift
fi
versions=("$@")
[[ ${#versions[@]} -gt 0 ]] || versions=("${ALL[@]}")

failed=()
for version in "${versions[@]}"; do
    target=.venv/spark/${version}
    if [[ ! -e ${target}/.installed ]]; then
        install() {
            "${PYTHON}" -m pip install --quiet --no-input --upgrade --target "${target}" "pyspark==${version}" \
                >"${target}.log" 2>&1
        }
        mkdir -p "${target}"
        timed "installing PySpark ${version} into ${target}" install || stop "It failed; see ${target}.log."
        touch "${target}/.installed"
    fi
    export PYTHONPATH=${PWD}/${target}
    "${PYTHON}" -c 'import pyspark; print("tests with PySpark", pyspark.__version__)'
    "${PYTHON}" -m pytest -q tests/spark/test_versions.py || failed+=("${version}: imports")
    "${PYTHON}" -m pytest -q -m "spark and not slow and not kafka" "${tests[@]}" || failed+=("${version}")
    unset PYTHONPATH
done
if [[ -z ${short} ]]; then
    "${PYTHON}" -m tests.golden.across_versions "${versions[@]}" || failed+=("across versions")
fi
[[ ${#failed[@]} -eq 0 ]] || stop "Failed: ${failed[*]}"
