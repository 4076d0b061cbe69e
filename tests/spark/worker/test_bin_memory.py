"""A worker holds the rows of a bin once while the bin's tasks run, and twice while it decodes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskplace.spark.worker.bin_context import BIN_BYTES
from tests.support.bin_memory import ROWS, TASKS, VALUE, WORK, written

ROOT = Path(__file__).resolve().parents[3]
#: What remains free of what a process has: the index of the rows, small objects, the allocator's own.
SLACK = 16 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    written(folder / "small", ROWS * VALUE)
    assert written(folder / "bin", BIN_BYTES) > BIN_BYTES - ROWS * VALUE
    return folder


def ended(folder: Path, limit: int) -> subprocess.CompletedProcess[str]:
    """Run the bin with so many bytes of memory. The allocator reserves nothing, and returns at once what is freed."""
    command = [sys.executable, "-m", "tests.support.bin_memory", str(folder), str(limit)]
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "65536"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300, check=False
    )


def test_a_bin_of_several_tasks_is_held_twice_while_it_is_decoded_and_once_while_its_tasks_run(folder):
    """While a task runs, its own rows and what its processor takes come on top: together less than the bin."""
    assert BIN_BYTES // TASKS + WORK < BIN_BYTES
    done = ended(folder, 2 * BIN_BYTES + SLACK)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_limit_is_in_force(folder):
    """With a quarter less, the bin cannot be decoded."""
    done = ended(folder, 3 * BIN_BYTES // 2)
    assert done.returncode != 0 and "MemoryError" in done.stderr
