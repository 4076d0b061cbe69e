"""A stream that one version of PySpark has begun goes on with another: `python -m tests.golden.across_versions 3.5.9 4.3.0`.

Each version begins a stream (`test_golden_spark`), and each other one goes on with a copy of it. The versions must be installed
in `.venv/spark/<version>`, as `scripts/test-versions.sh` does. Prints a table; fails if a newer version goes wrong, or
if an older one gives a wrong answer: it may refuse.
"""  # noqa: E501

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from tests.golden import test_golden_spark as on_spark

ROOT = Path(__file__).parents[2]


def run(version: str, folder: Path, batches: range) -> str:
    """Run batches with a version of PySpark. Return "" or the last line of the error."""
    own = f"{ROOT / '.venv' / 'spark' / version}{os.pathsep}{ROOT}"
    ran = subprocess.run(
        [sys.executable, "-m", "tests.golden.across_versions", "--run", folder, *map(str, batches)],
        env={**os.environ, "PYTHONPATH": own, "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return (ran.stderr.strip().splitlines() or ["failed"])[-1] if ran.returncode else ""


def run_here(folder: Path, batches: list[int]) -> None:
    from pyspark.sql import SparkSession

    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    try:
        on_spark.run(spark, folder, batches)
    finally:
        spark.stop()


def main(versions: list[str]) -> int:
    begun, wrong = on_spark.MADE, 0
    with tempfile.TemporaryDirectory() as scratch:
        for version in versions:
            folder = Path(scratch) / version
            folder.mkdir()
            if error := run(version, folder, range(begun)):
                raise SystemExit(f"{version} did not begin: {error}")
        for before, after in product(versions, versions):
            folder = Path(scratch) / f"{before}-{after}"
            shutil.copytree(Path(scratch) / before, folder, ignore=shutil.ignore_patterns("*.crc"))
            on_spark.moved(folder, str(Path(scratch) / before), str(folder))
            refused = run(after, folder, range(begun, len(on_spark.BATCHES)))
            right = not refused and on_spark.sent(folder) == on_spark.answers()
            newer = [*map(int, after.split("."))] >= [*map(int, before.split("."))]
            wrong += not right and (newer or not refused)
            print(f"{before} -> {after}: {'right' if right else refused or 'WRONG'}", flush=True)
            shutil.rmtree(folder)
    return min(wrong, 1)


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run_here(Path(sys.argv[2]), [int(number) for number in sys.argv[3:]])
    else:
        raise SystemExit(main(sys.argv[1:]))
