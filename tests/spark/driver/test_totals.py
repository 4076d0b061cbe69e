"""Rows and late rows are counted once, over restarts, failed batches and repeated ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from taskplace.record import SilentReporter
from taskplace.record.events import TOTALS, LateRows, Totals
from taskplace.record.words import summary_rows

from taskplace.spark.operator_messages import TotalsStatus
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.windows import KEY, clicks, quarters
from topology import Topology


class Heard(SilentReporter):
    def __init__(self):
        self.batches = []

    def batch(self, event):
        self.batches.append(event)


def counted(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2, event_time="at")
    source.process(Count("n", by=KEY, window=quarters()), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    return topo


def totals(placed):
    found = placed.metrics()
    assert placed.stats.totals == Totals(0, found["rows-total"], found["late-rows-total"])
    return found["batches-total"], found["rows-total"], found["late-rows-total"]


EARLY = clicks(("a", 0)), clicks(("a", 60), ("b", 61))
LATE = clicks(("a", 2), ("b", 3), ("a", 62))


def test_totals_continue_over_restarts_and_counters_of_the_driver_do_not(world):
    placed = world.open(counted(world))
    for number, rows in enumerate(EARLY):
        world.batch(placed, number, **{"in": rows})
    assert totals(placed) == (2, 3, 0)
    world.batch(placed, 2, **{"in": clicks()})
    world.batch(placed, 3, **{"in": LATE})
    assert totals(placed) == (4, 6, 2)
    assert placed.stats.late == 2
    placed.close()
    placed = world.open(counted(world))
    assert totals(placed) == (4, 6, 2)
    assert (placed.stats.late, placed.stats.rows) == (0, 0)
    world.batch(placed, 4, **{"in": LATE})
    assert totals(placed) == (5, 9, 4)
    assert (placed.stats.late, placed.stats.rows) == (2, 3)
    assert placed.summary().late == placed.stats.late_rows == LateRows(total=4, here=2)
    found = dict(summary_rows(placed.summary()))
    assert found["late rows since the checkpoint was created"] == "4"
    assert found["late rows since this driver started"] == "2"
    status = placed._runner.operations.status()
    assert status.totals == TotalsStatus(since=0, rows=9, late=4, late_here=2)


def test_a_reporter_hears_the_total_and_that_of_its_driver(world):
    placed = world.open(counted(world))
    for number, rows in enumerate((*EARLY, clicks(), LATE)):
        world.batch(placed, number, **{"in": rows})
    placed.close()
    heard = Heard()
    placed = world.open(counted(world), reporter=heard)
    world.batch(placed, 4, **{"in": LATE})
    assert [event.late for event in heard.batches] == [LateRows(total=4, here=2)]


@pytest.mark.parametrize("point", ["batch.staged", "batch.checked", "batch.committed", "batch.published"])
def test_a_batch_that_is_tried_twice_counts_once(world, point):
    placed = world.open(counted(world))
    for number, rows in enumerate((*EARLY, clicks())):
        world.batch(placed, number, **{"in": rows})
    failed = []

    def fail(name):
        if name == point and not failed:
            failed.append(name)
            raise OSError("the disk is gone")

    world.at = fail
    with pytest.raises(OSError, match="the disk is gone"):
        world.batch(placed, 3, **{"in": LATE})
    world.batch(placed, 3, **{"in": LATE})
    assert totals(placed) == (4, 6, 2)
    assert placed.stats.late == 2
    placed.close()
    assert totals(world.open(counted(world))) == (4, 6, 2)


def test_a_driver_that_takes_over_counts_on_from_what_the_other_has_committed(world):
    first = world.open(counted(world))
    world.batch(first, 0, **{"in": EARLY[0]})
    second = world.open(counted(world))
    for number, rows in enumerate((EARLY[1], clicks(), LATE), 1):
        world.batch(first, number, **{"in": rows})
    world.batch(second, 4, **{"in": LATE})
    assert totals(second) == (5, 9, 4)
    assert second.stats.late == 2, "the late rows of its own batch"


def test_a_checkpoint_of_an_older_version_is_counted_from_now_on(world):
    placed = world.open(counted(world))
    world.batch(placed, 0, **{"in": EARLY[0]})
    last = placed.journal.last
    old = replace(last, identity={name: value for name, value in last.identity.items() if name != TOTALS})
    assert Totals.of(old) == Totals(since=1, rows=0, late=0)
    assert Totals.of(last) == Totals(since=0, rows=1, late=0)
    assert Totals.of(None) == Totals()
