"""What commands print on terminals of any width, and without one: tables keep their form, other lines are folded."""

from __future__ import annotations

import re
import sys

import pytest
from rich.console import Console

from taskplace.cli import inspect, main
from taskplace.cli import status as status_words
from taskplace.cli.terminal import folded
from taskplace.record.events import InstanceView
from taskplace.record.terminal import placement_table
from taskplace.spark.inspection.checkpoint import Inspection, Kind, TaskState
from taskplace.spark.inspection.driver import DriverState
from taskplace.spark.operator_messages import DriverIdentity, ExecutorStatus, Status

WIDTHS = (40, 60, 80, 120, 200)
HOSTS = [f"ip-10-0-11-{120 + n}.eu-central-1.compute.internal" for n in range(3)]
LAGS = (0, 1_085, 1_234_567_890)


@pytest.fixture
def terminal(monkeypatch):
    """Make standard output a terminal of a width."""

    def of(width):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", f"{width}")

    return of


def seen(names=("executor-1", "executor-2", "executor-10"), hosts=HOSTS, drains=False):
    executors = {
        name: ExecutorStatus(
            host,
            2,
            dict.fromkeys(("0_0", "0_1", "0_2"), 0),
            {"0_3": lag},
            draining=drains and name == names[1],
        )
        for name, host, lag in zip(names, hosts, LAGS, strict=True)
    }
    driver = DriverIdentity("h", 7, "app", 0.0)
    now = Status("id", "t", 1, driver, 9.0, 1, 2.0, executors=executors)
    return DriverState(True, "driver 1 wrote its status just now", now, 0.5, 1, "/c")


def table(lines, first="executor"):
    """Return the heading and the rows of a table."""
    (start,) = [n for n, line in enumerate(lines) if line.startswith(f"{first} ")]
    rows = [line for line in lines[start + 1 :] if re.match(r"\w", line)]
    return lines[start], rows[:3]


def columns(heading):
    """Return where the columns of numbers end."""
    return {found[0]: found.end() for found in re.finditer(r"active|standby|warm-up|lag", heading)}


@pytest.mark.parametrize("width", [*WIDTHS, sys.maxsize])
@pytest.mark.parametrize("drains", [False, True])
def test_the_table_of_status(width, drains):
    lines = [folded(line, width) for line in status_words.lines(seen(drains=drains), width)]
    heading, rows = table(lines)
    assert all("\n" not in row and len(row) <= width for row in (heading, *rows))
    ends = columns(heading)
    for row, lag in zip(rows, LAGS, strict=True):
        assert row[: ends["lag"]].endswith(f" {lag:,}")
        assert row[: ends["active"]].endswith(" 3") if "active" in ends else width < 60
    assert ("host" in heading) == (width >= 80)
    assert [HOSTS[0] in rows[0], "ip-10-0-11-120" in rows[0]] == [width >= 120, width >= 80]
    assert ("drains" in rows[1]) == drains


def test_a_long_name_of_an_executor_is_shortened_last():
    names = [f"executor-of-the-pool-with-much-memory-{n}" for n in range(3)]
    for width in (40, 60, 80):
        heading, rows = table(list(status_words.lines(seen(names), width)))
        assert max(map(len, (heading, *rows))) <= width
        assert len({row.split()[0] for row in rows}) == 3
    assert names[0] in "\n".join(status_words.lines(seen(names)))


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_of_a_run(width):
    views = tuple(InstanceView(f"executor-{n}", 1_000, 1_000, 2, lag, n < 2) for n, lag in enumerate(LAGS))
    console = Console(width=width, record=True, color_system=None)
    console.print(placement_table(views, 7, width))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["executor-0", "executor-1", "executor-2", "all"]
    assert rows[3].endswith(" 1,085 │") and rows[0].endswith(" 0 │")


@pytest.mark.parametrize("width", [*WIDTHS, sys.maxsize])
def test_the_tables_of_inspect(width):
    name = "executor-of-a-long-name-1"
    tasks = {"active": ["0_0"], "standby": [f"0_{n}" for n in range(1, 20)], "warmup": []}
    found = Inspection(
        "/c",
        assignment={name: tasks},
        tasks={"0_0": TaskState(LAGS[2], 4, LAGS[2], LAGS[2], 10**15)},
        sizes={"changelog": Kind(10**7, 10**15, 10**15)},
    )
    lines = [folded(line, width) for line in inspect._lines(found, width)]
    for first in ("executor", "task", "kind"):
        for n, line in enumerate(lines):
            if line.startswith(f"{first} "):
                heading, row = line, lines[n + 1]
                assert "\n" not in line and "\n" not in row
                assert len(row) == len(heading) <= width
    assert max(len(part) for line in lines for part in line.splitlines()) <= width
    assert "at the last commit" in " ".join(lines)


@pytest.mark.parametrize("command", ["status", "inspect", "verify", "explain"])
@pytest.mark.parametrize("width", [60, 80])
def test_lines_are_folded_on_a_terminal(command, width, placed, capsys, terminal):
    """Words stay whole, and so do commands; anything else has lines of the terminal's width."""
    path = str(placed.checkpoint)
    main([command, path])
    whole = capsys.readouterr().out
    terminal(width)
    main([command, path])
    out = capsys.readouterr().out
    for line in out.splitlines():
        assert len(line) <= width or re.fullmatch(r"(\S+ +)?\S+|.*`.*`.*", line.strip()), line
    if command != "explain":
        assert max(map(len, whole.splitlines())) > width, "there was something to fold"


def test_can_remove_is_folded_and_a_command_to_copy_is_not(placed, capsys, terminal):
    from tests.support.operators import attended

    path = str(placed.checkpoint)
    terminal(60)
    with attended(placed):
        main(["can-remove", path, "executor-2"])
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 60
        main(["drain", path, "executor-2"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"nothing was changed; to do it: taskplace drain {path} executor-2 --yes"
