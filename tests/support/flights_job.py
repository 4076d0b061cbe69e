"""`taskplace run` on the flights job, in a process of its own: shortened, and in a directory of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "import sys; from taskplace.cli import main; sys.exit(main())"


def run_flights(
    directory: Path,
    *overrides: str,
    conf: str = "conf/flights.yaml",
    places: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the job on three files of each stream. `places`: keys of directories, by their names in `directory`."""
    places = {"report.html": "report.html", "report.events": "run.jsonl", **places}
    given = [f"{key}={directory / name}" for key, name in places.items()]
    command = [sys.executable, "-c", COMMAND, "run", conf]
    for override in (*given, "input.files=3", "report.progress=plain", *overrides):
        command += ["--set", override]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=400,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )


def page_data(page: Path) -> dict[str, Any]:
    """Return the data of a run's page."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page.read_text())
    assert found
    return dict(json.loads(found[1]))


def summary(out: str, label: str) -> int:
    """Return a number of the summary."""
    found = re.search(rf"^  {label} +([\d,]+)$", out, re.MULTILINE)
    assert found, out
    return int(found[1].replace(",", ""))
