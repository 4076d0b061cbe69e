"""The pages on partitions and groups: examples run, files and names are there, printed text and tables are right."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from taskplace.cli import main
from taskplace.groups.messages import Mode

ROOT = Path(__file__).parents[2]
PARTITIONS, GROUPS = ROOT / "docs" / "partitions.md", ROOT / "docs" / "groups.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PARTITIONS.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize(("page", "least"), [(PARTITIONS, 21), (GROUPS, 5)], ids=["partitions", "groups"])
def test_the_examples_of_the_page_run(page: Path, least: int) -> None:
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted >= least
    assert found.failed == 0


def test_the_command_of_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "subscriptions.json").write_text(_blocks("json")[0])
    monkeypatch.chdir(tmp_path)
    (block,) = _blocks("console")
    line, printed = block.removeprefix("$ ").split("\n", 1)
    assert main(shlex.split(line)[1:]) == 3
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("page", [PARTITIONS, GROUPS], ids=["partitions", "groups"])
def test_what_the_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = set(re.findall(r"\b(?:benchmarks|docs|examples|taskplace|tests)/[\w/]+(?:\.\w+)?", text))
    assert len(found) > 3
    for path in found:
        assert (ROOT / path).exists(), path


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
    lines = GROUPS.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("| ")]
    by_name = {cells[0]: cells for cells in rows}
    for way in (way for way in bench.WAYS if way.name in by_name):
        cells = by_name[way.name]
        if not way.frames_compress and not way.members_compress:  # deflate may differ from library to library
            up, down = bench.measure(way, 100, 100)
            assert [f"{up:,}", f"{down:,}"] == cells[1:3], way.name
        assert (float(cells[5]) > 1.2) == (way.mode is Mode.EVERY), way.name
