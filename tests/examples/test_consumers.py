"""examples/consumers.py runs as its page says, and hands over no more than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_consumers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.consumers"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    leaves, comes = lines.index("bob leaves"), lines.index("dora comes")
    # Whoever stays drops nothing when somebody leaves; when somebody comes, exactly what is handed over.
    assert all("dropped 0" in line for line in lines[:comes] if "state made" in line)
    assert lines[leaves - 1] == "balance score 2" and lines[comes - 1] == "balance score 0"
    assert lines[comes + 1] == "dora waits for 4 partitions to be let go"
    assert [line.rpartition(";")[2] for line in lines[comes + 2 : comes + 5]] == [
        " state made 0, dropped 2",
        " state made 0, dropped 2",
        " state made 4, dropped 0",
    ]
    assert lines[-1] == "every partition has one reader"
