"""What the bridge reads of load and progress, and which queries it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.steering.layout import QueryLayout, StateOperator
from topology.tasks import TaskId


class Checkpoint:
    """As much of Hadoop's file system as `state_sizes` asks for: bytes by directory."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.asked = sizes, []

    def bridge(self):
        """A bridge to it that has nothing else."""
        from taskplace.spark.steering.bridge import StateBridge

        found = object.__new__(StateBridge)
        where = SimpleNamespace
        fs = where(Path=lambda root, path: where(getFileSystem=lambda _: self, path=f"{root}/{path}"))
        found._jvm = where(org=where(apache=where(hadoop=where(fs=fs))))
        found._jsc = where(hadoopConfiguration=lambda: None)
        found._execution = where(resolvedCheckpointRoot=lambda: "c")
        return found

    def getContentSummary(self, path):
        self.asked.append(path.path)
        return SimpleNamespace(getLength=lambda: self.sizes[path.path])


def test_the_size_of_a_task_s_state_is_that_of_all_its_operators_each_listed_once():
    join, dedup = StateOperator(0, "join", ("left", "right"), 2), StateOperator(1, "dedupe", ("default",), 2)
    sizes = {"c/state/0/0": 10, "c/state/0/1": 20, "c/state/1/0": 1, "c/state/1/1": 2}
    checkpoint = Checkpoint(sizes)
    assert checkpoint.bridge().state_sizes(QueryLayout(((join, dedup),))) == {
        TaskId(0, 0): 11.0,
        TaskId(0, 1): 22.0,
    }
    assert sorted(checkpoint.asked) == sorted(sizes)


@pytest.mark.parametrize(("by", "expected"), [("rows", {0: 300.0, 1: 7.0}), ("task.time", {0: 2.05, 1: 0.3})])
def test_load_is_read_off_the_tasks_of_the_last_batch_whose_stages_are_all_known(monkeypatch, by, expected):
    from taskplace.spark.steering import bridge as bridge_state

    def task(rows, milliseconds):
        return {"taskMetrics": {"executorRunTime": milliseconds, "shuffleReadMetrics": {"recordsRead": rows}}}

    stages = {3: {0: task(300, 2000), 1: task(7, 250)}, 5: {0: task(1, 1)}}
    jobs = {8: [3], 9: [4, 5]}  # the last job has not got all of its tasks yet
    bridge = object.__new__(bridge_state.StateBridge)
    bridge.run_id = "run"
    job = SimpleNamespace(
        getJobIdsForGroup=lambda _: list(jobs),
        getJobInfo=lambda number: SimpleNamespace(
            isDefined=lambda: True, get=lambda: SimpleNamespace(stageIds=lambda: jobs[number])
        ),
    )
    bridge._jsc = SimpleNamespace(statusStore=lambda: None, statusTracker=lambda: job)
    monkeypatch.setattr(bridge_state.StateBridge, "_has_state", lambda self, store, stage: stage in stages)
    monkeypatch.setattr(bridge_state.StateBridge, "_tasks", lambda self, store, stage: stages[stage])
    found = bridge.task_load(QueryLayout(((StateOperator(0, "agg", ("default",), 2),),)), by)
    assert found == {TaskId(0, p): value for p, value in expected.items()}


def reported(batch: int, *, ended: bool):
    """One progress report: of a batch that ended, or of a query that waits before its next one."""
    return SimpleNamespace(
        batchId=lambda: batch,
        timestamp=lambda: f"{batch}{ended}",
        durationMs=lambda: Durations(["addBatch"] if ended else ["triggerExecution"]),
    )


class Durations(list):
    def containsKey(self, name):
        return name in self


def test_a_batch_that_ended_while_nobody_looked_is_seen_though_the_query_reports_that_it_waits():
    from taskplace.spark.steering.bridge import StateBridge

    said, searches = [], []
    bridge = object.__new__(StateBridge)
    bridge._ended = bridge._searched = None
    bridge._query = SimpleNamespace(
        lastProgress=lambda: said[-1] if said else None, recentProgress=lambda: searches.append(1) or said
    )
    assert bridge.finished_batch() is None
    said.append(reported(0, ended=True))
    assert bridge.finished_batch() == 0
    said += [reported(1, ended=True), reported(2, ended=False)]
    assert [bridge.finished_batch() for _ in range(5)] == [1] * 5
    assert len(searches) == 1, "recent reports are searched once for each that the query waits"
    said.append(reported(2, ended=True))
    assert bridge.finished_batch() == 2


def test_a_query_of_spark_connect_is_one_clear_error():
    from taskplace.spark import steer

    connect = type("StreamingQuery", (), {"runId": "r", "__module__": "pyspark.sql.connect.streaming.query"})
    with pytest.raises(UnsupportedSpark, match=r"Spark Connect.*works with classic PySpark 3\.5 to 4\.3"):
        steer(connect())


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0", "4.10.0", "4.30", "5.0.0.dev1"])
def test_a_version_that_was_never_tried_is_one_clear_error(monkeypatch, version):
    from taskplace.spark import steer

    monkeypatch.setattr("pyspark.__version__", version)
    classic = type("StreamingQuery", (), {"runId": "r", "_jsq": object()})
    said = rf"found PySpark {re.escape(version)}; steering works with classic PySpark 3\.5 to 4\.3"
    with pytest.raises(UnsupportedSpark, match=said):
        steer(classic())


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.0.dev1", "4.2.1", "4.3.0", "4.3.0+local"])
def test_the_versions_that_were_tried_are_let_in(monkeypatch, version):
    from taskplace.spark import steer
    from taskplace.spark.steering import bridge as bridge_state

    monkeypatch.setattr("pyspark.__version__", version)
    monkeypatch.setattr(bridge_state, "_has", lambda *_: False)
    monkeypatch.setattr(bridge_state, "_session_of", lambda query: object())
    classic = type("StreamingQuery", (), {"runId": "r", "_jsq": object()})
    with pytest.raises(UnsupportedSpark, match="whose queries do not show their execution"):
        steer(classic())


def test_what_is_no_query_is_one_clear_error():
    from taskplace.spark import steer

    with pytest.raises(InputError, match="query: found 'q', expected a running StreamingQuery"):
        steer("q")
    with pytest.raises(InputError, match="config: found 7"):
        steer(object(), 7)


def test_without_the_classic_part_of_pyspark_it_is_one_clear_error():
    """The classic part of PySpark cannot be imported, as in a PySpark for Spark Connect alone."""
    code = """
import sys
for name in ("py4j", "py4j.protocol", "py4j.java_gateway"):
    sys.modules[name] = None
from taskplace.errors import UnsupportedSpark
from taskplace.spark import steer
query = type("StreamingQuery", (), {"runId": "r", "__module__": "pyspark.sql.connect.streaming.query"})()
try:
    steer(query)
except UnsupportedSpark as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "classic PySpark cannot be imported" in done.stdout
    assert "not with Spark Connect" in done.stdout
