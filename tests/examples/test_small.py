"""The small examples run, each as its page says, and say themselves whether the result is right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(module, *arguments):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", f"examples.{module}", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=400, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_single_writer_is_elected_and_replaced():
    lines = run("single_writer")
    assert "a late write of the first one is refused: UNKNOWN_MEMBER_ID" in lines
    assert lines[-1] == "one writer at a time"


def test_a_pool_of_workers_shares_the_jobs_of_a_dead_one():
    lines = run("worker_pool")
    assert lines[-1] == "only the jobs of the dead worker have moved"
    assert sum(line.startswith("worker ") and ":" in line for line in lines) == 6


def test_consumers_hand_over_no_more_than_they_must():
    lines = [line.strip() for line in run("consumers")]
    leaves, comes = lines.index("bob leaves"), lines.index("dora comes")
    # Whoever stays drops nothing when somebody leaves; when somebody comes, exactly what is handed over.
    assert all("dropped 0" in line for line in lines[:comes] if "state made" in line)
    assert lines[leaves - 1] == "balance score 2" and lines[comes - 1] == "balance score 0"
    assert lines[comes + 1] == "dora waits for 4 partitions to be let go"
    made = [line.rpartition("; state made ")[2] for line in lines[comes + 2 : comes + 5]]
    assert made == ["0, dropped 2", "0, dropped 2", "4, dropped 0"]
    assert lines[-1] == "every partition has one reader"


def test_grouping_without_a_topology():
    lines = run("grouping")
    assert "group 4: orders, users, state in totals-changelog" in lines
    assert "task 4_1: orders[1], users[1]" in lines
    three, two = lines.index("3 workers:"), lines.index("2 workers:")
    of_the_leaver = set(lines[two - 1].split()[1:])
    assert lines[two - 1].startswith("  w3: ")
    came = {task for line in lines[two + 1 :] for task in line.partition("new: ")[2].rstrip(")").split()}
    assert two - three == 4
    assert came == of_the_leaver


@pytest.mark.spark
def test_two_chained_subtopologies():
    pytest.importorskip("pyspark")
    lines = run("chained")
    assert "  Sub-topology: 1" in lines
    assert lines[-1] == "the totals are right"


@pytest.mark.spark
def test_a_table_join_in_yaml_alone(tmp_path):
    pytest.importorskip("pyspark")
    lines = run("table_join", tmp_path / "join")
    assert "order 3 of cleo: unknown" in lines
    assert "order 4 of ada: Oslo" in lines
    assert lines[-1] == "every order went to the right city"
    batches = sorted(path.name for path in (tmp_path / "join/shipments").glob("batch_id=*"))
    assert batches == [f"batch_id={number}" for number in range(3)]
