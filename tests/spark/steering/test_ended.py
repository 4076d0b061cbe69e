"""What is steered, or read, after its session has ended is refused; what nobody can know yet is not told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from taskplace.spark.steering.bridge import StateBridge

from taskplace.errors import InputError, TaskplaceError
from taskplace.spark import steer
from taskplace.spark.bridge import Bridge
from taskplace.spark.query import PlacedQuery


def context(app: str = "app-1", stopped: bool = False):
    """Stands for a SparkContext of Scala's."""
    return SimpleNamespace(applicationId=lambda: app, isStopped=lambda: stopped)


def session(scala=None):
    """Stands for a session of Python's; without a context it was stopped."""
    java = SimpleNamespace(sc=lambda: scala) if scala else None
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java), _jsparkSession=None)


class Query:
    """Stands for a query that has been told to end, or not."""

    runId, id, name = "run", "id", "counts"  # noqa: N815 - as Spark calls it

    def __init__(self, scala) -> None:
        self._jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(sparkContext=lambda: scala))


def gone():
    raise Py4JNetworkError("nobody answers")


@pytest.mark.parametrize(
    ("now", "its"),
    [
        (None, context()),
        (session(), context()),
        (session(context(stopped=True)), context(stopped=True)),
        (session(context("app-2")), context("app-1", stopped=True)),
        (session(context("app-2")), context("app-1")),
        (session(SimpleNamespace(isStopped=gone)), context()),
    ],
    ids=["none", "stopped here", "stopped in the JVM", "another since", "of another", "no JVM"],
)
def test_a_query_whose_session_has_ended_is_refused_and_no_session_is_started(monkeypatch, now, its):
    monkeypatch.setattr(SparkSession, "_instantiatedSession", now)
    monkeypatch.setattr(
        SparkSession.Builder, "getOrCreate", lambda self: pytest.fail("a session was started")
    )
    with pytest.raises(InputError, match="query: found 'a query whose Spark session was stopped'"):
        steer(Query(its))


def test_a_session_that_was_stopped_is_refused():
    with pytest.raises(InputError, match=r"spark: found 'a session that was stopped', expected a running"):
        Bridge(session())


def test_after_the_end_nothing_is_read_from_a_session_that_another_call_would_start():
    bridge = Bridge.__new__(Bridge)
    bridge._spark = session()
    for use in (lambda: bridge.spark.read, lambda: bridge.pinned([b""], [None], list)):
        with pytest.raises(InputError, match="a session that was stopped"):
            use()


# ------------------------------------------------------------------------- before the first batch has ended


class Files:
    """Stands for Hadoop's, on this disk."""

    def exists(self, path: Path) -> bool:
        return path.exists()

    def listStatus(self, path: Path):
        return [
            SimpleNamespace(getPath=lambda p=p: SimpleNamespace(getName=lambda: p.name))
            for p in path.iterdir()
        ]


class HadoopPath(type(Path())):  # type: ignore[misc]
    def getFileSystem(self, conf: object) -> Files:
        return Files()


@pytest.fixture
def looking(tmp_path):
    """The bridge to a query of one operator with six partitions, and its checkpoint."""
    row = {"operatorId": 0, "operatorName": "stateStoreSave", "numPartitions": 6, "stateStoreName": "default"}
    rows = [SimpleNamespace(asDict=lambda: row)]
    found = SimpleNamespace(load=lambda root: SimpleNamespace(collect=lambda: rows))
    bridge = StateBridge.__new__(StateBridge)
    bridge._spark = session(context())
    bridge._spark.read = SimpleNamespace(format=lambda name: found)
    bridge._jsc = SimpleNamespace(hadoopConfiguration=lambda: None)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=HadoopPath))
    bridge._jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    bridge._execution = SimpleNamespace(resolvedCheckpointRoot=lambda: str(tmp_path))
    return bridge, tmp_path


def test_before_the_first_batch_has_ended_nobody_says_how_many_tasks_there_are(looking):
    """The driver makes the place of partition 0 before any task runs; the tasks make theirs one after the other."""
    bridge, checkpoint = looking
    assert bridge.layout(planned=False) is None
    (checkpoint / "state" / "0" / "0" / "_metadata").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / ".0.crc").touch()
    assert bridge.layout(planned=False) is None
    for partition in range(6):
        (checkpoint / "state" / "0" / str(partition)).mkdir(exist_ok=True)
    (checkpoint / "commits" / "0").touch()
    found = bridge.layout(planned=False)
    assert found is not None
    assert len(found.tasks) == 6


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("nobody answers"), ConnectionRefusedError(111, "refused")]
)
def test_a_jvm_that_has_ended_is_told_in_one_line_by_each_member_of_a_query(monkeypatch, error):
    """And a connection of somebody else's that is refused is not taken for it."""

    class Dead:
        def __getattr__(self, name):
            raise error

    closed = []
    query = PlacedQuery(SimpleNamespace(close=lambda: closed.append(1)), Dead())
    members = [
        lambda: query.id, lambda: query.isActive, lambda: query.status, lambda: query.lastProgress, query.exception,
        query.awaitTermination, query.processAllAvailable, query.stop,
    ]  # fmt: skip
    for gateway, kind, says in (
        (
            SimpleNamespace(jvm=SimpleNamespace(System=Dead())),
            TaskplaceError,
            "^Spark's JVM of this driver has ended: ",
        ),
        (
            SimpleNamespace(jvm=SimpleNamespace(System=SimpleNamespace(nanoTime=lambda: 7))),
            type(error),
            "refused|answers",
        ),
    ):
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        for member in members:
            with pytest.raises(kind, match=says) as raised:
                member()
            assert len(str(raised.value).splitlines()) == 1
    assert closed == [1, 1]
    assert bridge_stopped()


def bridge_stopped() -> bool:
    """Return what a bridge says whose JVM has ended."""
    bridge = object.__new__(Bridge)
    bridge._spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=refuse)))
    return bridge.stopped()


def refuse():
    raise ConnectionRefusedError(111, "refused")
