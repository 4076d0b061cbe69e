"""An executor is cut off from the driver, while a worker of it goes on writing to the checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
SECONDS = 500


@pytest.mark.timeout(600)  # a cluster starts, and a loss is noticed by silence
def test_what_an_executor_writes_that_was_cut_off_does_not_count(tmp_path):
    """It is lost by its silence alone: its connections stay open, and its process goes on."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}"}
    command = [sys.executable, str(Path(__file__).with_name("cut_off_driver.py")), str(tmp_path)]
    log = tmp_path / "driver.log"
    with log.open("ab") as to:
        driver = subprocess.Popen(command, cwd=ROOT, env=env, stdout=to, stderr=to, start_new_session=True)
    try:
        assert driver.wait(SECONDS) == 0, log.read_text()[-3000:]
    finally:
        with contextlib.suppress(ProcessLookupError):  # its JVM and executors too
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert "losses 1 scratch 0" in log.read_text()
