"""The page on partitions is right: its examples run, its command prints what it says, the files it names are there."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from taskplace.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "partitions.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 20
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


def test_the_files_that_the_page_names_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = set(re.findall(r"\b(?:benchmarks|docs|examples|taskplace|tests)/[\w/]+(?:\.\w+)?", text))
    assert len(found) > 4
    for path in found:
        assert (ROOT / path).exists(), path
