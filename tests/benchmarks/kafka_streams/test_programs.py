"""Child processes that print lines of JSON."""

from __future__ import annotations

import signal
import sys

import pytest
from kafka_streams.programs import Program, ProgramError, wait_for

PRINTS = "print('{\"at\": 1}', flush=True); print('no json', flush=True); import sys; sys.stdin.read()"


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a Python program; all are ended afterwards."""
    running = []

    def start(source, lines):
        running.append(Program("a child", [sys.executable, "-c", source], tmp_path / "log", lines.append))
        return running[-1]

    yield start
    for program in running:
        program.end()


def test_lines_of_json_are_taken_and_others_are_logged(start):
    lines = []
    program = start(PRINTS, lines)
    wait_for(lambda: bool(program.log_end()), "the log has a line", 30, program.check)
    assert lines == [{"at": 1}]
    assert program.log_end() == "no json"


def test_one_that_has_ended_is_an_error_with_the_end_of_its_log(start):
    program = start("import sys; sys.exit('no such broker')", [])
    with pytest.raises(ProgramError, match=r"a child has ended with code 1:\nno such broker"):
        wait_for(lambda: False, "never", 30, program.check)


def test_one_that_is_stopped_is_ended_too(start):
    lines = []
    program = start(PRINTS, lines)
    wait_for(lambda: bool(lines), "a line", 30, program.check)
    program.kill(signal.SIGSTOP)
    program.end()
    with pytest.raises(ProgramError, match="code 0"):
        program.check()
