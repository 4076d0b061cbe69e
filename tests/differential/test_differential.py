"""Random pipelines against a model in plain Python, against themselves, and against plain Spark.

`hypothesis` draws seeds. A failing case is shrunk and written to a file. `python -m tests.differential.fuzz --replay
FILE` runs it again, and it is kept in `corpus/` when its defect is fixed.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import fuzz, generate
from tests.differential.case import from_json, load, to_json
from tests.differential.lives import comparable
from tests.differential.model import Model

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
SEEDS = st.integers(0, 2**48)


@pytest.fixture(scope="session")
def failures(tmp_path_factory):
    return tmp_path_factory.mktemp("failures")


def check(seed: int, failures: Path, way: str | None = None) -> None:
    print(f"seed {seed}")
    case, drawn = fuzz.drawn(seed, way)
    _, kind, how = fuzz.attempt(case, drawn)
    if kind:
        file = fuzz.report(case, drawn, kind, how, seed, failures, seconds=60)
        pytest.fail(f"seed {seed}: {kind}\n{how}\n{file}:\n{file.read_text()[:4000]}")


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_cases_that_once_failed(file):
    told, _, how = fuzz.attempt(load(file), fuzz.way_of(file))
    assert told is not None, how
    assert not told.totals["refused"]


@settings(max_examples=12)
@given(seed=SEEDS)
def test_a_pipeline_sends_keeps_and_drops_what_the_model_says(seed, failures):
    check(seed, failures, "model")


@settings(max_examples=3)
@given(seed=SEEDS)
def test_other_partitions_and_other_cuts_give_the_same(seed, failures):
    check(seed, failures, "itself")


@pytest.mark.slow
@settings(max_examples=300)
@given(seed=SEEDS)
def test_many_pipelines(seed, failures):
    check(seed, failures)


@given(seed=SEEDS)
@settings(max_examples=10)
def test_a_case_is_the_same_after_json(seed):
    case, _ = fuzz.drawn(seed)
    assert to_json(from_json(to_json(case))) == to_json(case)


def against_spark(spark, seed: int, folder: Path) -> None:
    """Check that the model, taskplace without Spark and plain Spark agree in every batch. A failure names the seed."""
    from tests.differential import plain_spark

    print(f"seed {seed}")
    case = generate.spark_case(Random(seed))
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    found = plain_spark.run(session, case, folder / f"{seed}")
    model, (sink,) = Model(case), case.sinks
    for number in range(len(case.batches) + 2):
        batch = case.batches[number] if number < len(case.batches) else {}
        expected = comparable(model.batch(batch).sinks[sink])
        assert comparable(found.get(number, [])) == expected, f"seed {seed}, batch {number}"
    _, kind, how = fuzz.attempt(case, "model")
    assert not kind, how


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, 12])
def test_plain_spark_says_the_same(spark, tmp_path, seed):
    against_spark(spark, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_plain_spark_says_the_same_of_many(spark, tmp_path, seed):
    against_spark(spark, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(8))
def test_on_spark_it_is_as_without(spark, tmp_path, seed):
    from tests.differential import plain_spark

    case = generate.spark_case(Random(seed))
    found, model = plain_spark.placed(spark, case, tmp_path), Model(case)
    for number, batch in enumerate(case.batches):
        for sink, rows in model.batch(batch).sinks.items():
            assert comparable(found[sink][number]) == comparable(rows), f"seed {seed}, {sink}, batch {number}"
