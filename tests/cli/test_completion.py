"""Shell completion: bash completes commands, options, files and keys by the script; the others' scripts have them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from taskplace.cli import main, parser
from taskplace.cli.commands import SHELLS
from taskplace.cli.completion import DIRECTORIES, FILES, KEYS, actions, paths, script
from taskplace.spec.application import Settings

#: What no shell can complete: names and numbers.
NEITHER = {
    "ASSIGNOR", "EXECUTOR", "INSTANCE", "KEY", "[HOST:]PORT", "N", "NAME", "RATE", "SECONDS", "SEED",
    "SHELL", "TASK", "TOPIC",
}  # fmt: skip
BASH = shutil.which("bash") or "/bin/bash"
#: Completes the words that it gets, one line each, as bash does when its user presses the tabulator.
ASK = """
source "$1"; shift
COMP_WORDS=(taskplace "$@"); COMP_CWORD=$#; COMPREPLY=()
_taskplace
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completions") / "taskplace"
    path.write_text(script(parser(), "bash"), encoding="utf-8")
    return path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("orders.yaml", "problem.json"):
        (tmp_path / name).touch()
    (tmp_path / "odir").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["pl"], ["plan"]),
        (["can"], ["can-remove"]),
        (["run", "o"], ["odir", "orders.yaml"]),
        (["plan", "p"], ["problem.json"]),
        (["verify", "problem.json", "--plan", "p"], ["problem.json"]),
        (["inspect", "o"], ["odir"]),  # a checkpoint is a directory
        (["run", "orders.yaml", "--ch"], ["--check"]),
        (["plan", "problem.json", "--output", ""], ["text", "json"]),
        (["completion", ""], list(SHELLS)),
        (["run", "orders.yaml", "--set", "placement.num."], ["placement.num.standby.replicas="]),
        (["drain", "odir", ""], [""]),
    ],
)
def test_bash_completes(installed: Path, here: Path, words: list[str], completed: list[str]) -> None:
    done = subprocess.run(
        [BASH, "--norc", "-c", ASK, "bash", str(installed), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
    )
    assert sorted(done.stdout.splitlines()) == sorted(completed)
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_with_every_command(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in parser().commands.choices)
    if checker := shutil.which(shell):
        (tmp_path / "script").write_text(out, encoding="utf-8")
        subprocess.run([checker, "-n", str(tmp_path / "script")], check=True)


def test_it_is_told_of_each_argument_whether_it_is_a_file() -> None:
    """If this fails for a new argument: add its metavar to a list of taskplace/cli/completion.py, or to `NEITHER`."""
    named = {action.metavar for action in actions(parser()) if action.metavar}
    words = {word for name in named for word in ([name] if isinstance(name, str) else name)}
    assert words - {*FILES, *DIRECTORIES, *KEYS} - NEITHER == set()


def test_the_keys_are_those_that_set_may_name() -> None:
    assert len(paths()) > 20
    for path, value in (("placement.max.warmup.replicas", 3), ("report.log.tasks", "true")):
        assert path in paths()
        Settings.from_mapping({"application": {"id": "x", "class": "a:B"}}, [f"{path}={value}"])
