"""The page on placement is right: its examples run, and its picture shows what the engine plans."""

from __future__ import annotations

import doctest
import html
import importlib.util
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from taskplace.cli import main

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "placement.md"


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the page speaks of."""
    (tmp_path / "problem.json").write_text(_blocks("json")[0])
    (tmp_path / "my_assignors.py").write_text(_blocks("python my_assignors.py")[0])
    events = re.search(r"events in a file \(`(.*?)`\)", PAGE.read_text(encoding="utf-8"))
    assert events is not None
    (tmp_path / "events.json").write_text(events[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_assignors", raising=False)
    return tmp_path


def test_the_examples_of_the_page_run(workplace: Path) -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 15
    assert found.failed == 0


def test_the_commands_of_the_page_print_what_it_says(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        part.split("\n", 1)
        for block in _blocks("console")
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]
    ]
    assert [line.split()[1] for line, _ in commands] == ["plan", "explain", "simulate"]
    for line, printed in commands:
        main(shlex.split(line)[1:])
        assert capsys.readouterr().out == printed


def _plotter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_placement", ROOT / "benchmarks" / "plot_placement.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_what_the_engine_plans() -> None:
    plotter = _plotter()
    drawn = re.findall(r"<text[^>]*>(.*?)</text>", plotter.PICTURE.read_text(encoding="utf-8"))
    source = re.findall(r">([^<>]+)</(?:font|b|td)>", plotter.dot(plotter.page_problem()))
    assert Counter(html.unescape(text).replace("\xa0", " ") for text in drawn) == Counter(source)


@pytest.mark.parametrize("page", ["placement.md", "benchmarks.md"])
def test_the_files_that_the_pages_name_are_there(page: str) -> None:
    text = (PAGE.parent / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (PAGE.parent / link).exists(), link
    for path in re.findall(r"`((?:benchmarks|taskplace|tests)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
