"""docs/doctor.md is right: its command prints what it says, and its table is that of the rules."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

from taskplace.cli import main
from taskplace.doctor import RULES
from tests.support.pages import ROOT, blocks

PAGE = "docs/doctor.md"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import doctor

    yield doctor
    sys.modules.pop("doctor")


def test_the_command_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host of which nothing is known, and without a checkpoint at the file's place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("taskplace.cli.doctor.file_systems", dict)
    (tmp_path / "clicks.yaml").write_text(blocks(PAGE, "yaml clicks.yaml")[0])
    (tmp_path / "in").mkdir()
    (text,) = blocks(PAGE, "console")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["doctor", "clicks.yaml"]) == 6
    assert text == f"$ taskplace doctor clicks.yaml\n{out.getvalue()}"


def test_the_table_is_that_of_the_rules(script: ModuleType) -> None:
    text = script.FILE.read_text(encoding="utf-8")
    assert text == script.page(text), "run `python scripts/doctor.py`"
    for rule in RULES:
        assert f"| `{rule.id}` | {rule.severity} | {rule.finds} |" in text
    changed = text.replace("speculative execution", "other words")
    assert changed != text
    assert script.page(changed) == text
