"""Help: every command says what it does, with examples that are right and its exit codes; the page has them all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

from taskplace.cli import codes, main, parser
from taskplace.cli.parsers import FIRST

ROOT = Path(__file__).parents[2]
COMMANDS = parser().commands.choices


def shown(*command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_sentence_examples_and_exit_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    help_ = COMMANDS[name].help_
    out = shown(name, capsys=capsys)
    said = " ".join(out.split())
    assert f"{help_.line[0].upper()}{help_.line[1:]}." in said
    assert not help_.line.endswith(".") and len(help_.line) <= 80
    assert len(help_.examples) >= 2
    assert any(line.startswith(f"{name} ") for line, _ in help_.examples)
    for code, meaning in help_.codes.items():
        assert f" {code} {' '.join(meaning.split())}" in said
        assert code in codes.MEANINGS
    assert max(map(len, out.splitlines())) <= 110


@pytest.mark.parametrize(
    "line",
    [line for one in COMMANDS.values() for line, _ in one.help_.examples] + [line for line, _ in FIRST],
)
def test_the_examples_can_be_typed(line: str) -> None:
    """Up to the pipe: the rest is the shell's."""
    words = shlex.split(re.split(r" [|>&<]", line.removeprefix("taskplace "))[0])
    assert callable(resolve_name(parser().parse_args(words).command))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_is_explained(name: str) -> None:
    bare = [action.dest for action in COMMANDS[name]._actions if not action.help]
    assert bare == []


def test_the_page_of_the_command_line_is_what_the_parsers_say() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import command_line; print(command_line.page(), end='')"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert page == made.stdout, "run `python scripts/command_line.py`, and commit docs/command_line.md"
