"""What `placed.stats` prints, and shows in a notebook."""

from taskplace.record.events import Change, Rebalanced, Totals
from taskplace.spark.driver.stats import WINDOW, Stats


def measured() -> Stats:
    stats = Stats(batches=3, rows=12_000, late=4, totals=Totals(0, 50_000, 9))
    for number in range(WINDOW):
        stats.time({"commit": 0.001 * (number % 3), "whole batch": 2.5})
    return stats


def test_it_prints_a_table():
    lines = str(measured()).splitlines()
    assert lines[0] == "since this driver started"
    assert lines[2].split() == ["rows", "12,000"]
    assert lines[3].split() == ["late", "rows", "since", "this", "driver", "started", "4"]
    assert lines[-6:-3] == [
        "since the checkpoint was created",
        f"  rows{'50,000':>{len(lines[-5]) - 6}}",
        f"  late rows{'9':>{len(lines[-4]) - 11}}",
    ]
    assert [line.split() for line in lines[-2:]] == [["commit", "1", "ms"], ["whole", "batch", "2,500", "ms"]]
    assert {len(line) for line in lines if line.startswith(" ")} == {len(lines[1])}


def test_totals_of_an_older_checkpoint_say_since_when():
    assert "since batch 7\n" in str(Stats(totals=Totals(7, 1, 0)))


def test_its_representation_has_no_list_of_times():
    assert len(repr(measured())) < 400
    assert "rows=12000" in repr(measured())


def test_a_notebook_shows_the_same_rows():
    html = measured()._repr_html_()
    assert html.startswith("<table>")
    assert '<td>late rows since this driver started</td><td style="text-align:right">4</td>' in html
    assert html.count("<th") == 3


def test_moves_are_planned_or_forced():
    stats = Stats()
    changes = tuple(
        Change("0_1", role, origin, "b", "")
        for role, origin in (("active", "a"), ("active", None), ("promotion", "a"), ("warmup", "a"))
    )
    stats.count_rebalance(Rebalanced(1, 0, "", changes, promotions=1, seconds=0.5))
    stats.count_rebalance(Rebalanced(2, 1, "", seconds=0.25))
    assert (stats.rebalances, stats.moved, stats.promotions) == (2, 1, 1)
    assert (stats.rebalance_seconds, stats.longest_rebalance) == (0.75, 0.5)


def test_medians_are_of_the_last_batches(monkeypatch):
    monkeypatch.setattr("taskplace.spark.driver.stats.WINDOW", 3)
    stats = Stats()
    for seconds in (90.0, 80.0, 3.0, 1.0):
        stats.time({"commit": seconds})
    stats.time({"commit": 2.0, "publish": 4.0})
    assert stats.medians() == {"commit": 2.0, "publish": 0.0}
    assert [len(kept) for kept in stats.phases.values()] == [3, 3]
