"""scripts/clock.sh: how long something takes, in place on a terminal, and in a line at its end elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.terminal import DECIDING, Terminal

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or "/bin/bash"
#: `SECONDS` is bash's own clock; without its meaning it stands still.
CLOCK = f"set -euo pipefail; unset SECONDS; SECONDS=0; source {ROOT}/scripts/clock.sh;"
LONG = 'work() { SECONDS=75; }; timed "making it" work'


def lines(code: str, **env: str) -> list[str]:
    """Run bash code without a terminal, and return its lines."""
    inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
    done = subprocess.run(
        [BASH, "-c", CLOCK + code], env={**inherited, **env}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_without_a_terminal_the_work_is_named_at_once_and_its_time_at_the_end():
    assert lines(LONG) == ["making it", "  done (1 min 15 s)"]
    assert lines('timed "making it" :') == ["making it"]


def test_the_exit_code_of_the_work_is_passed_on():
    assert lines('timed "making it" false && echo yes || echo no') == ["making it", "no"]


@pytest.fixture
def gates(tmp_path):
    """Two pipes: the clock writes into one when it has drawn, and draws again after it was written to the other."""
    for name in ("drawn", "again"):
        os.mkfifo(tmp_path / name)
    stand_in = tmp_path / "bin" / "sleep"
    stand_in.parent.mkdir()
    stand_in.write_text(f"#!{BASH}\necho >{tmp_path}/drawn; read -r line <{tmp_path}/again\n")
    stand_in.chmod(0o755)
    return tmp_path


def on(terminal: Terminal, code: str, gates: Path, **env: str) -> int:
    return terminal.run([BASH, "-c", CLOCK + code], PATH=f"{gates}/bin:{os.environ['PATH']}", **env)


@pytest.mark.parametrize("columns", [80, 20])
def test_on_a_terminal_the_clock_runs_and_leaves_one_line(gates, columns):
    terminal = Terminal(columns=columns)
    code = f'work() {{ read -r line <{gates}/drawn; }}; timed "making it, which takes long" work'
    assert on(terminal, code, gates) == 0
    shown = "0:00  making it, which takes long"[: columns - 1]
    assert any(screen == (shown,) for screen in terminal.screens)
    assert " ".join(terminal.screen).startswith("making it, which")
    assert not any("0:00" in line for line in terminal.screen)


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("TERM", "dumb")])
def test_a_terminal_that_cannot_be_redrawn_gets_lines(gates, name, value):
    terminal = Terminal()
    assert on(terminal, LONG, gates, **{name: value}) == 0
    assert terminal.screen == ("making it", "  done (1 min 15 s)")


def test_an_interrupted_script_leaves_no_clock_behind(gates):
    """The clock looks for its script before it draws: after the script's death it draws no more."""
    terminal = Terminal()
    script = gates / "script"
    script.write_text(f"{CLOCK}clock_start 'making it'; read -r line <{gates}/drawn; kill -KILL $$")
    code = f"set +e; {BASH} {script}; printf '\\n%s\\n' $?; echo >{gates}/again; wait"
    assert on(terminal, code, gates) == 0
    assert terminal.screen[0].startswith("0:00  making it") and "137" in terminal.screen
    assert sum("making it" in line for line in terminal.screen) == 1


@pytest.mark.parametrize(("status", "says"), [(0, "ok      mypy"), (7, "FAILED  mypy")])
def test_quietly_shows_the_clock_while_it_waits(gates, status, says):
    terminal = Terminal()
    code = f"{ROOT}/scripts/quietly.sh mypy {BASH} -c 'read -r line <{gates}/drawn; exit {status}'"
    assert terminal.run([BASH, "-c", code], PATH=f"{gates}/bin:{os.environ['PATH']}") == status
    assert any(line.startswith("0:0") and line.endswith("  mypy") for line in sum(terminal.screens, ()))
    assert terminal.screen[-1].startswith(says)
