"""Tables fit any width: a row is a line, numbers are under their headings, and different texts look different.

Control characters in names and texts reach no terminal: not from a problem, a status, an error or an event.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.cli import main
from taskplace.cli.status import lines, view
from taskplace.record.events import BatchDone, ExecutorLost, InstanceView
from taskplace.record.terminal import Screen, TerminalReporter
from taskplace.spark.inspection.driver import DriverState
from taskplace.spark.operator_messages import DriverIdentity, ExecutorStatus, FailedBatch, Status
from taskplace.wording import Column, Printable, behind, fit, wrapped

COLUMNS = (
    Column("executor", text=True, least=12),
    Column("host", text=True, least=12, goes=1),
    Column("active", goes=2),
    Column("lag", goes=3),
)
names = st.text("abcdefgh-.0123", min_size=1, max_size=60)
tables = st.lists(
    st.tuples(names, names, st.integers(0, 10**4).map(str), st.integers(0, 10**13).map("{:,}".format)),
    max_size=6,
)


@given(rows=tables, width=st.integers(1, 200), gap=st.integers(1, 3))
def test_no_row_is_wider_than_its_room(rows, width, gap):
    fitted = fit(COLUMNS, rows, width, gap=gap)
    every = [[column.heading for column in fitted.columns], *fitted.rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(fitted.columns))]
    assert sum(widths) + gap * (len(widths) - 1) <= width
    assert fitted.columns[0].heading == "executor"[:width] or len(fitted.columns) == 1
    assert [len(row) for row in fitted.rows] == [len(fitted.columns)] * len(rows)


@given(rows=tables, width=st.integers(1, 200))
def test_hosts_that_differ_look_different_or_are_left_out(rows, width):
    fitted = fit(COLUMNS, rows, width)
    headings = [column.heading for column in fitted.columns]
    if "host" in headings:
        place = headings.index("host")
        shown = [row[place] for row in fitted.rows]
        assert len(set(shown)) == len({row[1] for row in rows})


@pytest.mark.parametrize("width", [20, 60])
def test_a_command_in_backquotes_stays_whole(width):
    command = "`taskplace inspect '/a b' --verify`"
    assert command in "\n".join(wrapped(f"damaged; {command} names files; a ` b `c", width))


HOSTILE, SHOWN = "a\x1b]0;x\x9b2J\x7f\u202e", r"a\u001b]0;x\u009b2J\u007f\u202e"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def drawn(stream) -> str:
    """What rich has drawn, without its own colours and moves of the cursor."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-ln-z]|\x1b\[[\d;]*m|\r", "", stream.getvalue())


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    return Screen(Printable(io.StringIO()))


@pytest.mark.parametrize(
    "command", [["plan"], ["explain"], ["plan", "--output", "json"], ["report", "--out", "-"]]
)
def test_a_problem(tmp_path, capsys, command):
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps({"tasks": [{"id": "0_0"}], "instances": [{"id": HOSTILE}]}))
    main([command[0], str(problem), *command[1:]])
    out, err = capsys.readouterr()
    assert not CONTROL.search(out + err)
    assert SHOWN in out + err
    if "json" in command:
        assert HOSTILE in json.loads(out)["assignment"]


def test_a_status(screen, capsys):
    status = Status(
        HOSTILE, HOSTILE, 1, DriverIdentity(HOSTILE, 7, HOSTILE, 0.0), 100.0, 1, 2.0,
        executors={HOSTILE: ExecutorStatus(HOSTILE, 1, error=HOSTILE)},
        losses=(ExecutorLost(HOSTILE, 18, 4),), failed=FailedBatch(99.0, 3, HOSTILE),
    )  # fmt: skip
    seen = DriverState(True, HOSTILE, status, 0.5, 1, Path(HOSTILE))
    screen.print(view(seen))
    print("\n".join(lines(seen)), file=Printable(sys.stdout))
    for said in (drawn(screen.file), capsys.readouterr().out):
        assert said.count(SHOWN) > 3 and not CONTROL.search(said)


def test_events_of_a_run(screen):
    reporter = TerminalReporter(console=screen)
    view = InstanceView(HOSTILE, 1, 0, 0, 0)
    reporter.failure(ExecutorLost(HOSTILE, 10, 8, True))
    reporter.batch(BatchDone(10, 27, 1, 5.5, {}, (view,), 4))
    reporter.note(HOSTILE)
    reporter.close()
    said = drawn(screen.file)
    assert said.count(SHOWN) >= 2 and not CONTROL.search(said)


def test_an_application_writes_to_the_stream_behind():
    stream = Printable(io.StringIO())
    print(HOSTILE, file=behind(stream))
    assert stream.getvalue() == f"{HOSTILE}\n" and behind(sys.stdout) is sys.stdout
