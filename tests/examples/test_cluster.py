"""The main job on a cluster of three hosts, of which one is killed: the result is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_a_host_is_killed_and_the_result_is_right():
    words = ["-m", "examples.cluster", "--set", "input.files=4", "--after", "2"]
    ran = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    assert "is killed: " in said
    assert "check: result equals the batch query" in " ".join(said.split())
