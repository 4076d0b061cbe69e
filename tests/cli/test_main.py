"""What all commands share: the version, an unknown command, an interrupt, a reader that has gone."""

import subprocess
import sys

import pytest

import taskplace
from taskplace.cli import main
from tests.support.command_line import STABLE, UNBALANCED, one_line


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"taskplace {taskplace.__version__}"


def test_an_interrupt_is_130(monkeypatch, write, capsys):
    def interrupted(problem):
        raise KeyboardInterrupt

    monkeypatch.setattr(taskplace, "plan", interrupted)
    assert main(["plan", write(STABLE)]) == 130
    assert "interrupted" in one_line(capsys)


def test_an_invalid_plan_is_a_failure(monkeypatch, write, capsys):
    def invalid(problem):
        raise taskplace.errors.InvalidPlan("once: 0_0")

    monkeypatch.setattr(taskplace, "plan", invalid)
    assert main(["plan", write(STABLE)]) == 1
    assert "once: 0_0" in one_line(capsys)


def test_a_reader_that_has_gone_is_no_traceback(write):
    command = f"{sys.executable} -c 'import sys; from taskplace.cli import main; sys.exit(main())' plan --output json"
    done = subprocess.run(
        ["bash", "-c", f"{command} {write(UNBALANCED)} | :"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
