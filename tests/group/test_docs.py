"""The page on groups is right: its examples run, what it names is there, and its table is what the benchmark counts."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from taskplace.groups import membership as group
from taskplace.groups.membership import Mode

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "groups.md"


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 5
    assert found.failed == 0


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:benchmarks|taskplace|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    for name in group.__all__:
        assert getattr(group, name) is not None


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "bench_join_payload", ROOT / "benchmarks/bench_join_payload.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_page_is_what_is_sent(bench: ModuleType) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    by_name = {cells[0]: cells for cells in rows}
    for way in bench.WAYS:
        cells = by_name[way.name]
        if not way.frames_compress and not way.members_compress:  # deflate may differ from library to library
            up, down = bench.measure(way, 100, 100)
            assert [f"{up:,}", f"{down:,}"] == cells[1:3], way.name
        assert (float(cells[5]) > 1.2) == (way.mode is Mode.EVERY), way.name


def test_leader_only_grows_linearly_and_full_lists_do_not(bench: ModuleType) -> None:
    every, single = (
        next(w for w in bench.WAYS if w.name == name) for name in ("full lists to all", "leader only")
    )
    grown = {w: bench.measure(w, 80, 20)[1] / bench.measure(w, 20, 20)[1] for w in (every, single)}
    assert grown[single] <= 4  # times the members
    assert grown[every] > 12
