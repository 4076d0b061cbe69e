"""The pages on partitions and groups: the printed command of docs/partitions.md, the table of docs/groups.md."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys

import pytest

from taskplace.cli import main
from taskplace.groups.messages import Mode
from tests.support.pages import ROOT, blocks


def test_the_command_of_the_page_prints_what_it_says(tmp_path, monkeypatch, capsys):
    (tmp_path / "subscriptions.json").write_text(blocks("docs/partitions.md", "json")[0])
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/partitions.md", "console")
    line, printed = block.removeprefix("$ ").split("\n", 1)
    assert main(shlex.split(line)[1:]) == 3
    assert capsys.readouterr().out == printed


@pytest.fixture(scope="module")
def bench():
    script = ROOT / "benchmarks/bench_join_payload.py"
    spec = importlib.util.spec_from_file_location("bench_join_payload", script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_page_is_what_is_sent(bench):
    rows = re.findall(r"^\| (.*) \|$", (ROOT / "docs/groups.md").read_text(encoding="utf-8"), re.M)
    by_name = {cells[0]: cells for cells in ([c.strip() for c in row.split("|")] for row in rows)}
    for way in (way for way in bench.WAYS if way.name in by_name):
        cells = by_name[way.name]
        if not way.frames_compress and not way.members_compress:  # deflate may differ from library to library
            up, down = bench.measure(way, 100, 100)
            assert [f"{up:,}", f"{down:,}"] == cells[1:3], way.name
        assert (float(cells[5]) > 1.2) == (way.mode is Mode.EVERY), way.name
