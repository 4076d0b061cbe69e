"""The page on groups is right: its examples run, what it names is there, and its table is what the benchmark counts."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
from pathlib import Path

from taskplace import group

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "groups.md"


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 12
    assert found.failed == 0


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:benchmarks|taskplace|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    for name in group.__all__:
        assert getattr(group, name) is not None


def test_the_table_of_the_page_is_what_is_sent() -> None:
    spec = importlib.util.spec_from_file_location(
        "bench_join_payload", ROOT / "benchmarks/bench_join_payload.py"
    )
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = bench
    spec.loader.exec_module(bench)
    rows = {cells[0]: cells for line in PAGE.read_text(encoding="utf-8").splitlines()
            if line.startswith("| ") for cells in [[c.strip() for c in line.strip("| ").split("|")]]}  # fmt: skip
    for way in bench.WAYS:
        cells = rows[way.name]
        if not way.frames_compress and not way.members_compress:  # deflate may differ from library to library
            assert [f"{count:,}" for count in bench.measure(way, 100, 100)] == cells[1:3], way.name
        assert (float(cells[5]) > 1.5) == way.name.startswith(("full lists", "hashed")), way.name


def test_leader_only_grows_linearly_and_full_lists_do_not() -> None:
    spec = sys.modules.get("bench_join_payload")
    assert spec is not None
    every, single = (next(w for w in spec.WAYS if w.name == n) for n in ("full lists to all", "leader only"))
    few, many = 20, 80
    grown = {w.name: spec.measure(w, many, 20)[1] / spec.measure(w, few, 20)[1] for w in (every, single)}
    assert grown["leader only"] <= many / few
    assert grown["full lists to all"] > 3 * many / few
