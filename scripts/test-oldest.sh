#!/usr/bin/env bash
# test-oldest.sh [PYTEST ARGUMENTS]: run the steering tests with the oldest Spark that can be steered.
# Its environment, .venv/oldest, is made when it is first needed: the project's dependencies, but another PySpark.
set -euo pipefail
cd "${BASH_SOURCE[0]%/*}/.."
source scripts/lib.sh

readonly VENV=.venv/oldest
readonly LOG=.venv/oldest.log
readonly SPARK="pyspark>=4.0,<4.1"
readonly STAMP=${VENV}/.installed

if [[ ! -e ${STAMP} || pyproject.toml -nt ${STAMP} || scripts/test-oldest.sh -nt ${STAMP} ]]; then
    timed "making ${VENV}" .venv/bin/python -m venv --clear "${VENV}"
    # What pyproject.toml asks for, without its PySpark and without what only checks the style.
    .venv/bin/python - >"${VENV}/requirements.txt" <<'PYTHON'
import re
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *extras["spark"], *extras["examples"], *extras["dev"]]
left_out = {"pyspark", "ruff", "mypy", "import-linter", "types-pyyaml"}
print("\n".join(line for line in wanted if re.match(r"[\w.-]+", line)[0].lower() not in left_out))
PYTHON
    install() {
        "${VENV}/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
            --requirement "${VENV}/requirements.txt" "${SPARK}" >"${LOG}" 2>&1
    }
    if ! timed "installing ${SPARK} into it, a minute or two the first time" install; then
        tail -n 30 "${LOG}" >&2
        stop "Installing the oldest Spark failed; the whole output is in ${LOG}."
    fi
    touch "${STAMP}"
fi
"${VENV}/bin/python" -c 'import pyspark; print("steering tests with PySpark", pyspark.__version__)'
exec "${VENV}/bin/python" -m pytest tests/spark/steering tests/examples/test_steer.py "$@"
