"""The example runs as its documentation says, on the first weeks of the year."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_steers_the_flights_and_its_result_is_right(tmp_path):
    options = [
        "input.files=5",
        f"input.dir={tmp_path / 'input'}",
        f"checkpoint.dir={tmp_path / 'checkpoint'}",
    ]
    command = [sys.executable, "examples/steer.py", "conf/steer.yaml", *options, "chaos=[]"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the result equals the batch query" in done.stdout
    assert "subtopology 1: dedupe" in done.stdout
    assert done.stdout.count("batch ") >= 5


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("steering.max.moves=3", "steering.max.moves: found an unknown key"),
        ("input.file=3", "input.file: found an unknown key"),
    ],
)
def test_a_bad_key_ends_the_example_with_one_line(option, message):
    command = [sys.executable, "examples/steer.py", "conf/steer.yaml", option]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
