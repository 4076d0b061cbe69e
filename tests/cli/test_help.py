"""Help: every command says what it does, with examples that are right and its exit codes; the page has them all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from taskplace.cli import codes, main, parser
from taskplace.cli.parsers import FIRST, GROUPS, all_codes

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
    for code, meaning in all_codes(help_).items():
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
    assert callable(parser().parse_args(words).command)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_is_explained(name: str) -> None:
    bare = [action.dest for action in COMMANDS[name]._actions if not action.help]
    assert bare == []


def test_the_help_has_every_command_in_its_group_and_what_to_type_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shown(capsys=capsys)
    places = [out.index("First steps:")] + [
        out.index(f"{title}:") for title in GROUPS.values() if title in out
    ]
    assert places == sorted(places)
    for line, what in FIRST:
        assert re.search(rf"^  {re.escape(line)} +{re.escape(what)}$", out, re.M)
    for name, one in COMMANDS.items():
        found = re.search(rf"^  {name} +{re.escape(one.help_.line)}$", out, re.M)
        assert found, name
        title = GROUPS[one.help_.group]
        assert out.rindex(":\n  ", 0, out.index(f"\n  {name} ") + 3) == out.index(f"{title}:") + len(title)


def test_no_command_at_all_shows_the_help_and_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert "First steps:" in out.err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_its_help(name: str) -> None:
    help_ = COMMANDS[name].help_
    assert help_.group in GROUPS
    assert help_.line
    assert len(help_.examples) >= 2
    assert 0 in help_.codes


def test_completion_says_that_its_output_is_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "The output is a shell script, so there is no --output json." in said
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert "Only `completion` has none: its output is a shell script." in " ".join(page.split())


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
