"""A real stream answers `status`, `can-remove` and `drain` from another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.placed_harness import data, wait_until

pytestmark = pytest.mark.spark

COMMAND = "import sys; from taskplace.cli import main; sys.exit(main())"
MOST_BATCHES = 20


def command(*arguments: object) -> tuple[int, str]:
    """Run `taskplace` in a process of its own; return its exit code and what it has printed."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def shown(path: Path) -> dict:
    """Return the status of a running stream."""
    code, out = command("status", path, "--watch", "--count", "1", "--output", "json")
    assert code == 0, out
    return json.loads(out)


def write_events(folder: Path, batch: int) -> None:
    """Add the file of a batch."""
    keys, groups, values = zip(*data(batch), strict=True)
    file = folder / f".{batch}.parquet"  # Spark does not read it before it is renamed
    pq.write_table(pa.table({"key": keys, "group": groups, "value": values}), file)
    file.rename(folder / f"{batch}.parquet")


def test_an_operator_empties_an_executor_from_another_process(pipeline, cluster, tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    placed, path = pipeline().placed, tmp_path / "checkpoint"
    files = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(events))
    query = placed.start({"events": files})
    try:
        write_events(events, 0)
        query.processAllAvailable()
        wait_until(lambda: shown(path)["status"]["batch"] == 0, "the status shows the batch")
        seen = shown(path)
        views = {view.id: view for view in placed.placement()}
        assert seen["status"]["executors"].keys() == views.keys()
        (name, *_) = (name for name, view in views.items() if view.active)

        code, out = command("drain", path, name)
        assert code == 3, out
        assert f"moves from {name} to " in out
        assert command("can-remove", path, name)[0] == 3
        code, out = command("drain", path, name, "--yes")
        assert code == 0, out
        assert f"draining: {name}" in out

        for batch in range(1, MOST_BATCHES):
            write_events(events, batch)
            query.processAllAvailable()
            code, out = command("can-remove", path, name)
            if code == 0:
                break
            assert code == 3, out
        assert (code, placed.can_remove(name)) == (0, True), out
        assert not any(placed.state.roles(name))
    finally:
        query.stop()
    code, out = command("status", path)
    assert code == 4, out
    assert "has ended" in out
    code, out = command("inspect", path, "--verify")
    assert code == 0, out
