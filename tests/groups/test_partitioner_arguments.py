"""KIP-794's argument as a simulation, and the page that shows it."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from taskplace.groups.partitioner import UniformStickyPartitioner
from tests.support.records import config

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_partitioner", ROOT / "benchmarks/plot_partitioner.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(3))
def test_the_old_one_favours_the_slow_broker_and_ours_does_not(plot: ModuleType, seed: int) -> None:
    print(f"seed {seed}")
    old, ours = (plot.run(name, slow=0.1, seconds=3, seed=seed) for name in plot.NAMES[:2])
    assert plot.slow_share(old) > 2
    difference = max(ours.records.values()) - min(ours.records.values())
    assert difference * plot.RECORD < plot.BATCH + plot.RECORD
    assert ours.most_waiting < old.most_waiting


def test_ours_begins_to_batch_after_five_records(plot: ModuleType) -> None:
    begin = {
        name: plot.run(name, slow=10, fast=10, seconds=0.05).first_wait
        for name in (*plot.NAMES, plot.ROTATING)
    }
    # Five in flight, and the next one waits: for one partition, or for each of the thirty.
    assert begin["uniform"] == plot.IN_FLIGHT + 1
    assert begin[plot.ROTATING] == plot.IN_FLIGHT * plot.PARTITIONS + 1
    assert begin["sticky (KIP-480)"] > 4 * plot.IN_FLIGHT


def test_a_slow_broker_gets_the_same_in_larger_batches(plot: ModuleType) -> None:
    ours = plot.run("uniform", slow=0.1, seconds=3)
    equal = plot.run("uniform", slow=0.005, seconds=3)
    per_batch = [one.sent[plot.SLOW] / one.batches[plot.SLOW] for one in (ours, equal)]
    assert per_batch[0] > 2 * per_batch[1]
    assert ours.records == equal.records


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_the_seed_alone_decides(seed: int) -> None:
    a, b = (UniformStickyPartitioner(7, config(50), seed=seed).assign([20] * 300) for _ in "ab")
    assert (a == b).all()


def test_the_picture_and_the_table_of_the_page_are_what_the_simulation_says(plot: ModuleType) -> None:
    page = (ROOT / "docs/partitioner.md").read_text(encoding="utf-8")
    assert " | ".join(plot.HEADER) in page
    titles = re.findall(r"slow / others = ([\d.]+)", plot.PICTURE.read_text(encoding="utf-8"))
    in_table = re.findall(r"^\| (?:sticky \(KIP-480\)|uniform|adaptive) \| ([\d.]+) \|", page, re.M)
    ours = f"{plot.slow_share(plot.run('uniform', slow=0.1)):.2f}"
    assert titles == in_table and titles[1] == ours


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(ROOT / "docs/partitioner.md"), module_relative=False)
    assert found.attempted >= 5
    assert found.failed == 0
