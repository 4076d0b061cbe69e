"""Snapshots are written, restored and read in as much memory as a piece takes, however large the copy is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from taskplace.spark.messages import FollowReport, FollowRequest
from taskplace.spark.worker import follow, identity, lookup
from tests.support.copies import snapshot_of
from tests.support.flat_memory import PIECE, filled, restore
from topology import TaskId

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(follow, "SNAPSHOT_BYTES", PIECE)
    monkeypatch.setattr(lookup, "SCAN_BYTES", PIECE)
    me = identity.owner_of(psutil.Process())
    monkeypatch.setattr(identity, "executor", lambda: ("1", me))
    monkeypatch.setattr(identity, "home", lambda root, app: root)


def test_memory_does_not_grow_with_the_copy(tmp_path):
    command = [sys.executable, "-m", "tests.support.flat_memory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found) == ["read", "restore", "snapshot"]
    for step, (_, some, many) in found.items():
        assert many < 1.5 * some + (1 << 20), (step, found)


def test_a_snapshot_that_was_made_as_one_piece_is_restored(tmp_path):
    entries = [(b"%04d" % i, b"v" * 100) for i in range(3_000)]
    restore(tmp_path, snapshot_of(tmp_path, [("s", entries)]))


def test_nothing_is_left_of_a_snapshot_that_could_not_be_written(tmp_path, monkeypatch):
    history = filled(tmp_path, 500)
    monkeypatch.setattr(follow, "record_batch", lambda *_: 1 / 0)
    orders = FollowRequest("", str(tmp_path), str(tmp_path), "app", {0: ["s"]}, {0: ["s"]})
    done = FollowReport("executor-1", here=True)
    work = follow.FollowWork(orders, follow.Budget(None), identity.executor()[1], tmp_path, done)
    work.snapshot(TaskId(0, 0), history)
    assert done.errors[TaskId(0, 0)] == "ZeroDivisionError"
    assert list((tmp_path / "snapshots").rglob("*.*")) == []
