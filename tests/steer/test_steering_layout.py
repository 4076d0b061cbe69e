"""What there is to steer, read off plans and metadata; prices; what cannot be steered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from statistics import median
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.steering.layout import Layout, Operator, layout, stages_of, that_ran
from taskplace.spark.steering.measured_costs import LEAST_RELOAD, LEAST_TASK, MeasuredCosts
from taskplace.spark.steering.status import SteeringStatus
from topology.ids import TaskId


def info(operator: int) -> str:
    return (
        f"state info [ checkpoint = file:/c/state, runId = r, opId = {operator}, ver = 3, numPartitions = 6]"
    )


CHAINED = f"""WriteToDataSourceV2 org.apache.spark.Write@1
+- *(8) HashAggregate(keys=[window#1], functions=[sum(total#2)])
   +- StateStoreSave [window#1], {info(0)} stateStoreCkptIds = None, Append, 0, 0, 2
      +- *(7) HashAggregate(keys=[window#1], functions=[merge_sum(total#2)])
         +- StateStoreRestore [window#1], {info(0)} stateStoreCkptIds = None, 2
            +- Exchange hashpartitioning(window#1, 6), ENSURE_REQUIREMENTS, [plan_id=1267]
               +- StateStoreSave [key#3], {info(1)}, Append, 0, 0, 2
                  +- StateStoreRestore [key#3], {info(1)}, 2
                     +- *(3) HashAggregate(keys=[key#3], functions=[partial_sum(value#4)])
                        +- StreamingDeduplicate [key#3, at#5], {info(2)}, 0, 0
                           +- Exchange hashpartitioning(key#3, at#5, 6), REQUIRED_BY_STATEFUL_OPERATOR
                              +- EventTimeWatermark at#5: timestamp, 1 minutes
                                 +- MicroBatchScan[key#3, value#4, at#5] JSON
"""

JOIN = f"""Project [key#1]
+- StreamingSymmetricHashJoin [key#1], [key#2], Inner, condition = [ leftOnly = null], {info(0)}, 0
   :- StateStoreSave [key#1], {info(1)}, Append
   :  +- Exchange hashpartitioning(key#1, 6)
   :     +- Project [key#1]
   :        +- MicroBatchScan[key#1] JSON
   +- Exchange hashpartitioning(key#2, 6)
      +- StateStoreSave [key#2, day#3], {info(2)}, Append
         +- Exchange hashpartitioning(key#2, day#3, 6)
            +- MicroBatchScan[key#2] JSON
"""

BOTH_SIDES = f"""Union
:- StateStoreSave [key#1], {info(0)}, Update
:  +- Exchange hashpartitioning(key#1, 6)
:     +- MicroBatchScan[key#1] JSON
+- Exchange hashpartitioning(key#2, 6)
   +- StreamingDeduplicate [key#2], {info(1)}, 0, 0
      +- Exchange hashpartitioning(key#2, 6)
         +- MicroBatchScan[key#2] JSON
"""

# A "!" marks a node that reads what its children do not have.
TRANSFORM = f"""WriteToDataSourceV2 org.apache.spark.Write@1
+- !TransformWithStateInPySpark count(key#1)#2, [key#1], Update, NoTime, {info(0)}, pandas, false
   :- *(2) Sort [key#1 ASC NULLS FIRST], false, 0
   :  +- Exchange hashpartitioning(key#1, 6), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=35]
   :     +- FileScan json [key#1]
   +- PlanLater LocalRelation <empty>
"""

SIDE_BY_SIDE = f"""StreamingSymmetricHashJoin [a#1], [b#2], Inner, {info(0)}
:- Exchange hashpartitioning(a#1, 6)
:  +- StateStoreSave [x#1], {info(1)}, Append
:     +- Exchange hashpartitioning(x#1, 6)
+- Exchange hashpartitioning(b#2, 6)
   +- StateStoreSave [y#2], {info(2)}, Append
      +- Exchange hashpartitioning(y#2, 6)
"""


@pytest.mark.parametrize(
    ("plan", "stages", "chained"),
    [
        (CHAINED, ((0,), (1, 2)), True),
        (JOIN, ((0, 1), (2,)), True),
        (TRANSFORM, ((0,),), True),
        (BOTH_SIDES, ((0,), (1,)), True),
        (SIDE_BY_SIDE, ((0,), (1,), (2,)), False),
        ("MicroBatchScan[key#1] JSON", (), True),
    ],
)
def test_operators_without_an_exchange_between_share_a_stage(plan, stages, chained):
    assert stages_of(plan) == (stages, chained)


@pytest.mark.parametrize(
    "text", ["\n", "\nx", "\n\n   y", "\r\n", "\n  StateStoreSave", "\nExchange", "\n : +", "\x0b-\u2028"]
)
def test_line_breaks_in_literals_and_names_are_no_nodes(text):
    plan = (
        CHAINED.replace(
            "*(3) HashAggregate(keys=[key#3]", f"*(3) HashAggregate(keys=[split(v, {text}, -1)#3]"
        )
        .replace("StateStoreSave [key#3]", f"StateStoreSave [split(v, {text}, -1)#3]")
        .replace("EventTimeWatermark at#5", f"Project [split(v, {text}) AS w#5, at#5]")
    )
    assert plan.count(text) >= 3
    assert stages_of(plan) == stages_of(CHAINED) == (((0,), (1, 2)), True)


@given(st.text(alphabet=" \n\rax,:[]()!*", max_size=30))
def test_whatever_a_literal_says_the_stages_are_the_same(literal):
    plan = CHAINED.replace("partial_sum(value#4)", f"partial_sum({literal})")
    assert stages_of(plan) == stages_of(CHAINED)


def test_all_stores_of_a_task_go_together():
    join = Operator(0, "symmetricHashJoin", ("left", "right"), 2)
    dedup = Operator(1, "dedupe", ("default",), 2)
    found = Layout(((join, dedup),))
    assert found.stores(TaskId(0, 1)) == ((0, 1, "left"), (0, 1, "right"), (1, 1, "default"))
    assert found.tasks == (TaskId(0, 0), TaskId(0, 1))


def test_an_operator_that_spark_runs_with_one_task_has_one_whatever_the_configured_number():
    """As of `dropDuplicates().groupBy().agg()`: the metadata says 6 partitions of both."""
    known = [Operator(0, "stateStoreSave", ("default",), 6), Operator(1, "dedupe", ("default",), 6)]
    plan = SIDE_BY_SIDE.replace("opId = 2", "opId = 9")
    found = layout(that_ran(known, {0: 1, 1: 6}, planned=True), plan)
    assert [str(t) for t in found.tasks] == ["0_0", "1_0", "1_1", "1_2", "1_3", "1_4", "1_5"]
    assert "1 partitions" in found.described[0]
    # Before there is a plan they are one subtopology, and only the first task has stores of both.
    early = layout(that_ran(known, {0: 1, 1: 6}, planned=False), None)
    assert len(early.tasks) == 6
    assert early.stores(TaskId(0, 0)) == ((0, 0, "default"), (1, 0, "default"))
    assert early.stores(TaskId(0, 5)) == ((1, 5, "default"),)


def test_before_the_first_batch_of_a_new_query_nobody_knows_what_runs():
    known = [Operator(0, "stateStoreSave", ("default",), 6)]
    assert that_ran(known, {0: 0}, planned=False) == ()
    assert that_ran(known, {0: 0}, planned=True) == tuple(known)


@given(st.sets(st.integers(0, 300)))
def test_partitions_are_counted_by_the_names_of_their_directories(found):
    from taskplace.spark.bridge_state import count_partitions

    names = ["_metadata", ".crc", *map(str, found)]
    assert count_partitions(names) == max(found, default=-1) + 1


# -------------------------------------------------------------------------------------------------- load


class Checkpoint:
    """As much of Hadoop's file system as `state_sizes` asks for: bytes by directory."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.asked = sizes, []

    def bridge(self):
        """A bridge to it that has nothing else."""
        from taskplace.spark.bridge_state import StateBridge

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
    join, dedup = Operator(0, "join", ("left", "right"), 2), Operator(1, "dedupe", ("default",), 2)
    sizes = {"c/state/0/0": 10, "c/state/0/1": 20, "c/state/1/0": 1, "c/state/1/1": 2}
    checkpoint = Checkpoint(sizes)
    assert checkpoint.bridge().state_sizes(Layout(((join, dedup),))) == {
        TaskId(0, 0): 11.0,
        TaskId(0, 1): 22.0,
    }
    assert sorted(checkpoint.asked) == sorted(sizes)


@pytest.mark.parametrize(("by", "expected"), [("rows", {0: 300.0, 1: 7.0}), ("task.time", {0: 2.05, 1: 0.3})])
def test_load_is_read_off_the_tasks_of_the_last_batch_whose_stages_are_all_known(monkeypatch, by, expected):
    from taskplace.spark import bridge_state

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
    found = bridge.task_load(Layout(((Operator(0, "agg", ("default",), 2),),)), by)
    assert found == {TaskId(0, p): value for p, value in expected.items()}


def test_operators_that_the_plan_does_not_have_are_left_alone():
    known = [Operator(number, "stateStoreSave", ("default",), 6) for number in (0, 1, 2, 7)]
    assert [[op.id for op in group] for group in layout(known, CHAINED).subtopologies] == [[0], [1, 2]]
    assert layout([], None) == Layout((), chained=False)


# -------------------------------------------------------------------------------------------------- prices


def test_rocksdb_s_own_load_time_is_what_a_reload_costs():
    book = MeasuredCosts(bytes_per_second=1.0)
    quiet = {"commitTimeMs": 400, "memoryUsedBytes": 4000}
    assert book.observe([quiet], tasks=4, loaded=0).reload == 1000.0  # the assumption
    moved = {**quiet, "customMetrics": {"rocksdbLoadLatencyMs": 900, "rocksdbLoadFromSnapshotLatencyMs": 800}}
    assert book.observe([moved], tasks=4, loaded=2).reload == 0.45
    assert book.observe([quiet], tasks=4, loaded=0).reload == 0.45


def test_what_every_batch_spends_on_loading_is_no_reload():
    book = MeasuredCosts(bytes_per_second=1e9)
    quiet = {"commitTimeMs": 1000, "customMetrics": {"rocksdbLoadLatencyMs": 600}}
    assert book.observe([quiet], tasks=200, loaded=1).reload == LEAST_RELOAD  # nothing to compare with
    book.observe([quiet], tasks=200, loaded=0)
    moved = {**quiet, "customMetrics": {"rocksdbLoadLatencyMs": 1000}}
    assert book.observe([moved], tasks=200, loaded=2).reload == pytest.approx(0.2)


def test_prices_are_never_nothing():
    prices = MeasuredCosts(bytes_per_second=1e9).observe([{"numRowsTotal": 0}], tasks=4, loaded=0)
    assert (prices.task, prices.reload) == (LEAST_TASK, LEAST_RELOAD)


def test_observed_tasks_come_before_the_operators_own_times():
    book = MeasuredCosts(bytes_per_second=1.0)
    assert book.observe([{"commitTimeMs": 4000}], 4, 0, seconds=[2.0, 3.0, 4.0]).task == 3.0


@given(st.lists(st.none() | st.floats(0.01, 100.0), max_size=60))
def test_a_task_costs_what_was_last_observed_however_long_ago(observed):
    book, found = MeasuredCosts(bytes_per_second=1.0), []
    for seconds in observed:
        found += [] if seconds is None else [seconds]
        price = book.observe([{"commitTimeMs": 4000}], 4, 0, seconds=[seconds] * 4 if seconds else None).task
        assert price == (median(found[-5:]) if found else 1.0)


# -------------------------------------------------------------------------------------------------- status


def test_a_status_reads_as_text_and_as_json():
    status = SteeringStatus(
        "clicks",
        "stood down",
        batch=3,
        operators=("subtopology 0: stateStoreSave (0), 6 partitions, 1 stores each",),
        executors={"executor-1": (4, 3), "executor-2": (2, 3)},
        draining=("executor-1",),
        reason="because; remedy: do something",
        weights={"0_3": 4.0},
        errors=1,
        changes=("drain of executor-1 asked for",),
    )
    text = str(status)
    for part in ("because", "executor-1: 4 tasks, 3 intended, draining", "0_3 4.0", "1 errors", "- drain of"):
        assert part in text
    assert json.loads(json.dumps(status.to_dict()))["executors"]["executor-2"] == {"tasks": 2, "intended": 3}


# ------------------------------------------------------------------------------------- what cannot be steered


def test_a_query_of_spark_connect_is_one_clear_error():
    from taskplace.spark import steer

    connect = type("StreamingQuery", (), {"runId": "r", "__module__": "pyspark.sql.connect.streaming.query"})
    with pytest.raises(UnsupportedSpark, match=r"Spark Connect.*works with classic PySpark 4\.0 to 4\.3"):
        steer(connect())


@pytest.mark.parametrize("version", ["3.5.1", "4.4.0", "4.10.0", "4.30", "5.0.0.dev1"])
def test_a_version_that_was_never_tried_is_one_clear_error(monkeypatch, version):
    from taskplace.spark import steer

    monkeypatch.setattr("pyspark.__version__", version)
    classic = type("StreamingQuery", (), {"runId": "r", "_jsq": object()})
    said = rf"found PySpark {re.escape(version)}; steering works with classic PySpark 4\.0 to 4\.3"
    with pytest.raises(UnsupportedSpark, match=said):
        steer(classic())


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.0.dev1", "4.2.1", "4.3.0", "4.3.0+local"])
def test_the_versions_that_were_tried_are_let_in(monkeypatch, version):
    from taskplace.spark import bridge_state, steer

    monkeypatch.setattr("pyspark.__version__", version)
    monkeypatch.setattr(bridge_state, "_has", lambda *_: False)
    monkeypatch.setattr(bridge_state, "_session_of", lambda query: object())
    classic = type("StreamingQuery", (), {"runId": "r", "_jsq": object()})
    with pytest.raises(UnsupportedSpark, match="whose queries do not show their execution"):
        steer(classic())


def test_a_spark_whose_internals_are_elsewhere_is_one_clear_error(monkeypatch):
    from taskplace.spark import bridge_state, steer

    # What a session of some later version might look like: nothing is where it was.
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


def test_the_name_is_the_function_whatever_was_imported_before():
    code = "import taskplace.spark.steering.config; from taskplace.spark import steer; print(callable(steer))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


# ------------------------------------------------------------------------------------------------- progress


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
    from taskplace.spark.bridge_state import StateBridge

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
