"""Control characters in names and texts reach no terminal: not from a problem, a status, an error or an event."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from taskplace.record.events import BatchDone, ExecutorLost, InstanceView
from taskplace.record.terminal import Screen, TerminalReporter

from taskplace.cli import main
from taskplace.cli.status import StatusView, lines
from taskplace.spark.inspection.driver_seen import DriverSeen
from taskplace.spark.operator_messages import DriverIdentity, ExecutorStatus, FailedBatch, LossStatus, Status
from taskplace.wording import Printable, behind

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


def test_an_error(capsys):
    assert main(["plan", f"{HOSTILE}\udc80.json"]) == 2
    assert SHOWN in (said := capsys.readouterr().err) and not CONTROL.search(said)


def test_a_status(screen, capsys):
    status = Status(
        HOSTILE, HOSTILE, 1, DriverIdentity(HOSTILE, 7, HOSTILE, 0.0), 100.0, 1, 2.0,
        executors={HOSTILE: ExecutorStatus(HOSTILE, 1, trouble=HOSTILE)},
        losses=(LossStatus(99.5, HOSTILE, 18, 4),), failed=FailedBatch(99.0, 3, HOSTILE),
    )  # fmt: skip
    seen = DriverSeen(True, HOSTILE, status, 0.5, 1, Path(HOSTILE))
    screen.print(StatusView(seen))
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
