"""Orders to kill: which processes they end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from taskplace.spark import faults

point, executor = sys.argv[1:]
if executor != "none":
    faults.worker_of(int(executor))
faults.point(point)
"""


@pytest.fixture
def executor():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def passes(tmp_path, point: str, executor: object) -> int:
    """Return how a process ended that came by this point."""
    (tmp_path / point).write_text("kill")
    env = {"TASKPLACE_FAULTS": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run([sys.executable, "-c", SCRIPT, point, str(executor)], env=env).returncode


def test_a_worker_is_killed_with_its_executor(tmp_path, executor):
    assert passes(tmp_path, "attempt.sealed", executor.pid) == -signal.SIGKILL
    assert executor.wait(10) == -signal.SIGKILL
    assert not (tmp_path / "attempt.sealed").exists()


def test_a_driver_is_killed_alone(tmp_path, executor):
    assert passes(tmp_path, "batch.staged", executor.pid) == -signal.SIGKILL
    assert executor.poll() is None


def test_a_process_that_works_for_no_executor_is_killed_alone(tmp_path):
    assert passes(tmp_path, "restore.piece", "none") == -signal.SIGKILL
