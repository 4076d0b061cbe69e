"""The handle over a bridge that stands for Spark: names, what is refused, who waits for whom.

Failed rounds: repeated once the query waits, and three in a row end in a stand-down.

Stopping a handle: moves that have not run yet are reverted, unless that may be too late.

What is steered, or read, after its session has ended is refused; what nobody can know yet is not told.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from taskplace.errors import InputError, TaskplaceError
from taskplace.spark import steer
from taskplace.spark.bridge import Bridge
from taskplace.spark.query import PlacedQuery
from taskplace.spark.steering.application import SteeredQueries
from taskplace.spark.steering.bridge import StateBridge
from tests.support.steering_stand_in import Spark, failing, polled, steering_of, turned
from tests.support.steering_streams import wait_until


def test_a_query_is_steered_by_one_handle_at_a_time():
    first, second, other = (Spark("once", 4, 2, run=run) for run in ("q", "q", "another"))
    one = steering_of(first)
    one.start()
    with pytest.raises(
        InputError, match=r"query: found 'a query that is already steered'.*its stop\(\) first"
    ):
        steering_of(second).start()
    beside = steering_of(other)
    beside.start()
    one.stop()
    again = steering_of(second)
    again.start()
    for steering in (again, beside):
        steering.stop()
        assert steering.status().state == "stopped"


def test_when_spark_itself_is_gone_the_handle_has_ended():
    spark = Spark("gone", 4, 2)
    steering = steering_of(spark)
    spark.active = lambda: (_ for _ in ()).throw(ConnectionRefusedError("nobody there"))
    steering.start()
    wait_until(lambda: steering.status().state == "ended", "it notices")
    assert steering.status().errors == 0
    with pytest.raises(InputError, match="executor: found '99', expected one of"):
        steering.drained("99")


@pytest.mark.parametrize("method", ["drain", "undrain", "drained", "decommission"])
@pytest.mark.parametrize("bad", ["99", 99, "", "executor-", "Executor-1", "1 ", None, 1.0, True])
def test_an_executor_that_never_was_is_one_clear_error(method, bad):
    steering = steering_of(Spark("names", 4, 2))
    polled(steering)
    with pytest.raises(
        InputError, match=r"^executor: found .*, expected (one of executor-0, executor-1$|an id like '3')"
    ):
        getattr(steering, method)(bad)


@pytest.mark.parametrize("call", ["plan", "resume", "drain", "undrain", "decommission"])
def test_a_handle_that_is_stopped_refuses_what_it_cannot_do(call):
    steering = steering_of(Spark("stopped", 4, 2))
    steering.start()
    steering.stop()
    with pytest.raises(
        InputError, match="steering: found 'a handle that is stopped', expected a handle that is steering"
    ):
        getattr(steering, call)(*([] if call in ("plan", "resume") else ["1"]))


def test_nobody_waits_for_a_round_that_waits_for_spark():
    spark = Spark("slow", 6, 3, spread=True)
    began, over = threading.Event(), threading.Event()
    layout = spark.layout
    spark.layout = lambda *, planned: (began.set(), over.wait(30), layout(planned=planned))[-1]
    steering = steering_of(spark)
    steering.start()
    told = []

    def ask() -> None:
        steering.drain("2")
        steering.undrain("2")
        told.extend([steering.drained("2"), steering.status().state])

    try:
        assert began.wait(30)
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(10)
        assert told == [False, "waiting for the first batch"]
    finally:
        over.set()
        steering.stop()


def test_what_stood_down_stays_so_until_it_is_resumed_though_the_operators_are_read_later():
    spark = Spark("reads later", 6, 2)
    read, failures = spark.layout, [ZeroDivisionError("no plan")] * 3
    spark.layout = lambda *, planned: (
        (_ for _ in ()).throw(failures.pop()) if failures else read(planned=planned)
    )
    steering = steering_of(spark)
    while failures:
        with pytest.raises(ZeroDivisionError) as error:
            steering._turn()
        steering._failed(error.value)
        spark.ran()
    assert steering.status().state == "stood down"
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert steering.status().state == "stood down"
    assert "ZeroDivisionError: no plan" in steering.status().reason
    assert spark.sent == 0
    steering.resume()
    polled(steering)
    assert spark.sent == 1


@pytest.mark.parametrize("part", ["places", "state_operators", "settings", "layout"])
def test_a_batch_whose_round_has_failed_is_observed_once_more(part):
    spark = Spark(f"passes {part}", 12, 3)
    steering = steering_of(spark, 2)
    if part != "layout":
        polled(steering)
        spark.ran()
    setattr(spark, part, failing(2, getattr(spark, part)))
    assert turned(steering) == 1
    assert steering.status().batch == spark.batch
    assert steering._rounds.memory.ran is not None
    assert spark.sent == (2 if part == "layout" else 4), "with the budget of a batch that ran"
    assert (steering.status().state, steering.status().errors) == ("steering", 2)


def test_what_fails_after_each_batch_and_never_between_them_stands_down():
    spark = Spark("after each", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    spark.state_operators = failing(10**6, None)
    spark.ran()
    turned(steering)
    assert steering.status().state == "stood down"
    assert steering.status().errors == 3
    assert "OSError: a passing error" in steering.status().reason
    spark.ran()
    turned(steering)
    assert steering.status().errors == 4, "one round a batch, to know what is there"


def test_stopping_takes_moves_back_after_errors_too_unless_a_batch_has_run_since():
    for what in ("waits", "ran"):
        spark = Spark(f"errors: {what}", 12, 3)
        steering = steering_of(spark, 4)
        polled(steering)
        sent, there = dict(spark.at), dict(spark.running)
        if what == "ran":
            spark.ran()
        else:
            steering.undrain("0")  # another round
        really, spark.places = spark.places, failing(3, spark.places)
        turned(steering)
        assert steering.status().state == "stood down"
        spark.places = really
        steering.stop()
        assert spark.at == (sent if what == "ran" else there)


@pytest.mark.parametrize("what", ["begins", "begins and ends", "has ended"])
def test_stopping_takes_back_nothing_once_a_batch_has_begun_or_the_query_has_ended_meanwhile(what):
    spark = Spark(f"meanwhile: {what}", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    sent, places = dict(spark.at), spark.places

    def meanwhile(found):
        if what == "begins":
            spark.between_batches = lambda: False
        else:
            spark.ran()
        return places(found)

    if what == "has ended":
        spark.on = False
    else:
        spark.places = meanwhile
    steering.stop()
    assert spark.at == sent
    assert not any("reverted" in change for change in steering.status().changes)


def test_stopping_sends_nothing_back_to_an_executor_that_is_gone_or_drains():
    for what in ("gone", "drains", "decommissioned"):
        spark = Spark(f"no way back: {what}", 6, 3, spread=True)
        steering = steering_of(spark, 6)
        polled(steering)
        if what == "gone":
            spark.there.pop()
        elif what == "drains":
            steering.drain("2")
        else:
            spark.ending = {"2"}
        polled(steering)
        assert "executor-2" not in spark.at.values()
        steering.stop()
        assert "executor-2" not in spark.at.values()


def test_a_stop_that_cannot_take_moves_back_stops_all_the_same():
    spark = Spark("cannot", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    spark.places = failing(1, spark.places)
    steering.stop()
    assert steering.status().state == "stopped"
    assert steering.status().errors == 1


def test_a_round_that_comes_after_the_stop_sends_and_publishes_nothing():
    """The thread may be in a call to Spark when it is stopped, for longer than `stop` waits."""
    spark = Spark("late round", 6, 3)
    steering = steering_of(spark)
    steering._end("stopped")
    assert not steering._turn()
    assert spark.sent == 0
    assert SteeredQueries.of("late round").neighbours("another") == (0, [])


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


def test_after_the_end_nothing_is_read_from_a_session_that_another_call_would_start():
    bridge = Bridge.__new__(Bridge)
    bridge._spark = session()
    for use in (lambda: bridge.spark.read, lambda: bridge.pinned([b""], [None], list)):
        with pytest.raises(InputError, match="a session that was stopped"):
            use()


# ------------------------------------------------------------------------- before the first batch has ended


class Files:
    """Stands in for Hadoop's file system, on the local disk."""

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
    """A refused connection to somebody else does not count as the end of Spark's JVM."""

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
