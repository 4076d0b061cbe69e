"""The plan of several topics, and the watermark of what was planned, without Spark and without brokers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.spark.compile.programs import EventTime, watermark
from taskplace.spark.driver import read_topics
from taskplace.spark.driver.batch import Batch
from taskplace.spark.kafka.alignment import Alignment, _related, alignment
from taskplace.spark.kafka.records import Extent
from taskplace.spark.worker.topic_reader import RANGES, read_of
from topology import TaskId, Topology


@dataclass
class Log:
    """A topic whose records have an event time and a record's time; `there` of each partition are visible."""

    topic: str
    most: int
    partitions: list[list[tuple[int, int]]]
    there: list[int] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)  # as Spark has it
    last_ends: dict[int, int] | None = None  # with availableNow

    def __post_init__(self) -> None:
        self.there = [0] * len(self.partitions)
        self.at = dict.fromkeys(range(len(self.partitions)), 0)

    @property
    def offset(self) -> dict[str, Any]:
        return {"topic_id": self.topic, "offsets": {str(p): at for p, at in self.at.items()}}

    def extent(self, positions: Mapping[str, Mapping[int, int]]) -> Extent:
        firsts = dict.fromkeys(self.at, 0)
        begins = {**firsts, **positions.get(self.topic, {})}
        return Extent(firsts, begins, {p: max(self.there[p], begins[p]) for p in self.at}, self.most)

    def last(self) -> dict[str, Any]:
        return {"topic_id": self.topic, "offsets": {str(p): self.there[p] for p in self.at}}

    def own(self) -> Extent:
        extent = self.extent({self.topic: self.at})
        if self.last_ends is None:
            return extent
        return extent._replace(ends={p: min(end, self.last_ends[p]) for p, end in extent.ends.items()})

    def times_at(self, offsets: Mapping[int, int]) -> dict[int, int]:
        return {p: self.partitions[p][at][1] for p, at in offsets.items() if at < self.there[p]}

    def later_than(self, time_ms: int, partitions: Collection[int]) -> dict[int, int]:
        later = {
            p: next((n for n, one in enumerate(self.partitions[p][: self.there[p]]) if one[1] > time_ms), -1)
            for p in partitions
        }
        return {p: at for p, at in later.items() if at >= 0}

    @property
    def done(self) -> bool:
        return all(self.at[p] == len(records) for p, records in enumerate(self.partitions))


class Run:
    """A stream: plans each topic as its source does, and moves the watermark as the driver does."""

    def __init__(self, topo: Topology, logs: dict[str, Log], delay: int, folder: Path, *, now: bool) -> None:
        self.built, self.logs, self.folder, self.now = topo.build(), logs, folder, now
        timed = [node.topic for node in self.built.nodes if "event_time" in node.options]
        self.times = {topic: EventTime("at", delay) for topic in timed}
        self.batch, self.taken, self.late = -1, 0, 0
        self.last: Any = None  # the last manifest
        (folder / "offsets").mkdir(parents=True)
        self.start()

    def start(self, idle_ms: int = 0) -> None:
        made = {
            topic: alignment(self.built, self.logs, topic, idle_ms=idle_ms, spark_checkpoint=self.folder)
            for topic in self.logs
        }
        self.planned: dict[str, Alignment | None] = made
        for log in self.logs.values():
            log.last_ends = {p: log.there[p] for p in log.at} if self.now else None

    def trigger(self) -> dict[str, list[tuple[int, int]]]:
        """Run a batch, and return the records of each topic; empty if there is nothing new."""
        ends, extents = {}, {}
        for topic, log in self.logs.items():
            extents[topic] = own = log.own()
            plan = self.planned[topic]
            ends[topic] = own.capped if plan is None else plan.ends(log.offset, own, last=self.now)
            assert all(own.begins[p] <= end <= own.capped[p] for p, end in ends[topic].items())
        if all(ends[topic] == extents[topic].begins for topic in ends):
            return {}
        self.batch += 1
        found: dict[str, list[tuple[int, int]]] = {topic: [] for topic in self.logs}
        reports = []
        before = self.last.watermark if self.last is not None else None
        for topic, log in self.logs.items():
            backlog = [p for p, end in ends[topic].items() if end < extents[topic].ends[p]]
            for p, end in ends[topic].items():
                records = log.partitions[p][log.at[p] : end]
                if records:
                    row = dict(zip(RANGES.names, (topic, p, log.at[p], end, backlog), strict=True))
                    read = read_of(topic, pa.Table.from_pylist([row], RANGES), len(records))
                    newest = {topic: max(at for at, _ in records)} if topic in self.times else {}
                    reports.append(SimpleNamespace(task=TaskId(0, p), read=read, event_times=newest))
                    self.late += sum(before is not None and at < before for at, _ in records) if newest else 0
                found[topic] += records
            log.at = dict(ends[topic])
        self._commit(reports)
        lines = ["v1", "{}", *(msgspec.json.encode(log.offset).decode() for log in self.logs.values())]
        (self.folder / "offsets" / str(self.batch)).write_text("\n".join(lines))
        return found

    def _commit(self, reports: list[Any]) -> None:
        read = read_topics.advanced(self.folder, self.last, reports, {})
        batch = Batch(id=self.batch, input=None, session=None, watermarks=None)  # type: ignore[arg-type]
        batch.read, batch.reports = read, dict(enumerate(reports))  # type: ignore[misc]
        known = self.last.event_times if self.last is not None else {}
        now = watermark(self.times, known, self.last.watermark) if self.last is not None else None
        newest = {t: max(at, known.get(t, at)) for t, at in {**known, **batch.event_times}.items()}
        identity = read_topics.with_read({}, self.batch, self.logs, read)
        self.last = SimpleNamespace(
            batch=self.batch, identity=identity, event_times={**known, **newest}, watermark=now
        )


def one() -> Topology:
    topo = Topology("one")
    topo.source("a", key="k", partitions=1, event_time="at").process(name="n")
    return topo


def merged() -> Topology:
    topo = Topology("merged")
    sources = [topo.source(name, key="k", partitions=1, event_time="at") for name in "ab"]
    sources[0].merge(sources[1], name="n")
    return topo


def joined(**table: Any) -> Topology:
    topo = Topology("joined")
    stream = topo.source("a", key="k", partitions=1, event_time="at")
    stream.join_table(topo.source("b", key="k", partitions=1, **table), name="n")
    return topo


TOPOLOGIES = [one, merged, joined, lambda: joined(event_time="at")]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Topology, dict[str, Log], int, list[tuple[str, int]]]:
    """Draw topics, and the arrivals of their records: event times are at most `delay` behind their order."""
    topo = draw(st.sampled_from(TOPOLOGIES))()
    topics = [node.topic or "" for node in topo.build().nodes if node.kind == "source"]
    delay = draw(st.integers(0, 20))
    logs = {t: Log(t, draw(st.integers(1, 5)), [[] for _ in range(draw(st.integers(1, 3)))]) for t in topics}
    places = [(topic, p) for topic, log in logs.items() for p in range(len(log.partitions))]
    skew = st.sampled_from([place for place in places for _ in range(draw(st.sampled_from([1, 1, 10])))])
    stamp = draw(st.sampled_from(["arrival", "event", "none", "any"]))
    arrivals = draw(st.lists(skew, max_size=60))
    for number, (topic, p) in enumerate(arrivals):
        at = 10 * number - draw(st.integers(0, delay))
        times = {"arrival": 10 * number, "event": at, "none": 0}
        logs[topic].partitions[p].append((at, times[stamp] if stamp in times else draw(st.integers(0, 99))))
    return topo, logs, delay, arrivals


@given(streams(), st.data(), st.booleans())
@settings(deadline=None)
def test_nothing_is_late_and_there_is_always_progress(drawn, data, now):
    topo, logs, delay, arrivals = drawn
    coming = iter(arrivals)
    with TemporaryDirectory() as folder:

        def come() -> None:
            for topic, p in itertools.islice(coming, data.draw(st.sampled_from([0, 1, 7, 60]))):
                logs[topic].there[p] += 1

        come()
        run = Run(topo, logs, delay, Path(folder), now=now)
        targets = {topic: dict(enumerate(log.there)) for topic, log in logs.items()}
        joins = "b" in logs and any(node.join for node in run.built.nodes)
        for _ in range(1000):
            tables = dict(logs["b"].at) if joins else {}
            unread = joins and not any(logs["a"].at.values())
            found = run.trigger()
            if found and unread and found["a"]:
                assert all(tables[p] >= end for p, end in targets["b"].items()), "the table comes first"
            if not found:
                visible = [log for log in logs.values() if any(log.own().new)]
                assert not visible, "a batch that could be read was not"
            if found and data.draw(st.integers(0, 9)):
                continue
            come()
            if (now and not found) or (
                not now and data.draw(st.booleans())
            ):  # the run has ended, or its driver
                run.start()
                targets = {topic: dict(enumerate(log.there)) for topic, log in logs.items()}
            if all(log.done for log in logs.values()):
                break
        assert all(log.done for log in logs.values())
        assert run.late == 0
        event(f"batches: {min(run.batch + 1, 20) // 5 * 5}")


@given(streams())
@settings(deadline=None)
def test_a_backlog_is_read_in_the_order_of_the_records_times(drawn):
    topo, logs, delay, _ = drawn
    for log in logs.values():
        log.partitions = [sorted(records, key=lambda each: each[1]) for records in log.partitions]
        log.there = [len(records) for records in log.partitions]
    with TemporaryDirectory() as folder:
        run = Run(topo, logs, delay, Path(folder), now=True)
        joins = any(node.join for node in run.built.nodes)
        while True:
            read = {(topic, p): at for topic, log in logs.items() for p, at in log.at.items()}
            if not run.trigger():
                break
            if joins and not (any(logs["a"].at.values()) and any(read["a", p] for p in logs["a"].at)):
                continue  # tables come first, and the first batch of the stream is planned beside them
            taken = [
                records[read[topic, p] : log.at[p]][int(not read[topic, p]) :]
                for topic, log in logs.items()
                for p, records in enumerate(log.partitions)
            ]
            left = [
                records[log.at[p]][1]
                for log in logs.values()
                for p, records in enumerate(log.partitions)
                if log.at[p] < len(records)
            ]
            times = [time for each in taken for _, time in each]
            assert not times or not left or max(times) <= min(left)
        assert all(log.done for log in logs.values())


def test_a_topic_waits_for_records_of_others_as_long_as_it_may(tmp_path):
    logs = {name: Log(name, 5, [[(number, number) for number in range(9)]]) for name in "ab"}
    run = Run(merged(), logs, 0, tmp_path, now=False)
    time_s = 0.0
    for topic in logs:
        run.planned[topic] = alignment(run.built, logs, topic, idle_ms=1000, spark_checkpoint=tmp_path)
        run.planned[topic].clock = lambda: time_s  # type: ignore[union-attr]
    logs["a"].there = [3]
    assert run.trigger() == {}
    time_s = 0.9
    assert run.trigger() == {}
    time_s = 1.0
    assert len(run.trigger()["a"]) == 3  # `b` has no records
    logs["a"].there = [4]
    logs["b"].there = [1]
    assert [len(rows) for rows in run.trigger().values()] == [1, 1]
    logs["a"].there = [5]
    assert run.trigger() == {}  # it waits anew
    time_s = 9.0
    assert len(run.trigger()["a"]) == 1
    logs["a"].there = [6]
    assert len(run.trigger()["a"]) == 1  # `b` has been silent for long
    logs["b"].there = [2]
    assert run.trigger() == {}
    time_s = 10.0
    assert len(run.trigger()["b"]) == 1
    logs["a"].there = [7]
    assert run.trigger() == {}
    run.now = True
    assert len(run.trigger()["a"]) == 1  # nothing comes any more


def test_a_run_that_ends_is_not_held_by_records_that_come_meanwhile(tmp_path):
    logs = {"a": Log("a", 1, [[(0, 100)] * 5]), "b": Log("b", 1, [[(0, 50)] * 5])}
    logs["a"].there, logs["b"].there = [5], [1]
    run = Run(merged(), logs, 0, tmp_path, now=True)
    run.trigger()
    logs["b"].there = [5]
    while run.trigger():
        pass
    assert [log.at for log in logs.values()] == [{0: 5}, {0: 1}]


def test_a_partition_that_a_table_has_lost_matters_only_while_there_is_something_to_read(tmp_path):
    logs = {name: Log(name, 1, [[(0, 100)]]) for name in "ab"}
    for log in logs.values():
        log.there = [1]
    run = Run(joined(), logs, 0, tmp_path, now=True)
    while run.trigger():
        pass
    assert all(log.done for log in logs.values())
    run.start(idle_ms=1000)
    run.planned["a"].targets = {"b": {1: 5}}  # type: ignore[union-attr]
    assert run.trigger() == {}


def test_a_query_with_a_checkpoint_elsewhere_is_read_as_it_comes(tmp_path):
    """Where other topics are is not known then: waiting for them might be for ever."""
    logs = {name: Log(name, 5, [[(0, 0)] * 20], [20]) for name in "ab"}
    for log in logs.values():
        log.there = [20]
    (folder := tmp_path / "never").mkdir()
    for at in (0, 5):
        logs["a"].at = {0: at}
        plan = alignment(joined().build(), logs, "a", idle_ms=1000, spark_checkpoint=folder)
        assert plan is not None and plan.ends(logs["a"].offset, logs["a"].own(), last=False) == {0: at + 5}


def test_which_topics_are_read_together_and_which_first():
    topo = Topology("t")
    source = {name: topo.source(name, key="k", partitions=2) for name in "abcdefg"}
    by_k = source["a"].repartition("k", name="by-k")
    by_k.join_table(source["b"].repartition("k", name="b-by-k"), name="of-b")
    source["b"].join_table(source["c"], name="of-c")
    source["e"].join_table(source["f"], name="of-f")
    source["f"].join_table(source["e"], name="of-e")
    for alone in "dg":
        source[alone].process(name=f"of-{alone}")
    groups, tables = _related(topo.build(), "abcdefg")
    assert sorted(map(sorted, groups)) == [["a", "b", "c"], ["d"], ["e", "f"], ["g"]]
    assert tables == {"a": {"b", "c"}, "b": {"c"}}, "topics that would wait for each other do not"
    groups, tables = _related(topo.build(), "ac")  # those that Spark brings are not planned here
    assert tables == {} and sorted(map(sorted, groups)) == [["a"], ["c"]]
