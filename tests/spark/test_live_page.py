"""The live page of a real stream in Chromium, while an executor is killed by its process id."""

from __future__ import annotations

import pytest

from tests.support.placed_harness import EXECUTORS, kill_executor, wait_until

pytestmark = pytest.mark.spark


def rows_of(browser, section: str) -> list[dict[str, str]]:
    """The first table of a section: its rows by the names of the columns."""
    return list(
        browser.script(
            """return [...document.querySelectorAll(`#${arguments[0]} table.rows tbody tr`)].map((row) =>
              Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent.trim()])))""",
            section,
        )
    )


@pytest.mark.timeout(600)  # on a busy machine, a replacement and its warm-ups take minutes
def test_the_loss_of_an_executor_and_its_recovery_appear_as_they_happen(pipeline, browser):
    p = pipeline()
    page = p.placed.serve_ui()
    browser.open(page.url)
    for batch in range(3):
        p.run(batch)
    browser.wait(lambda: browser.figures()["batches"] == "3")
    p.settle()
    assert {row["active"] for row in rows_of(browser, "now")} == {"4"}

    victim = max(p.placed.placement(), key=lambda view: (view.active, view.id)).id
    killed: list[str] = []

    def kill(batch: int, subtopology: int) -> None:
        if not killed:
            kill_executor(p.placed, victim)
            killed.append(victim)

    p.placed.on_stage = kill
    p.run(3, rows=20_000)
    browser.wait(lambda: browser.figures()["executors lost"] == "1")
    browser.wait(lambda: browser.figures()["batches"] == "4")
    [loss] = rows_of(browser, "recovery")
    assert (loss["executor"], loss["during"], loss["active tasks"]) == (victim, "batch 3", "4")
    assert (loss["promoted"], loss["restored from scratch"]) == ("4", "0")
    assert any(victim in row["what"] and row["kind"] == "loss" for row in rows_of(browser, "timeline"))

    # A replacement comes, its copies warm up, and the page shows that all standbys have caught up.
    wait_until(lambda: len(p.placed.state.members) == EXECUTORS, "the replacement is a member", seconds=300)
    batch = 4
    while {(v.active, v.standby, v.warmup) for v in p.placed.placement()} != {(4, 4, 0)}:
        assert batch < 60, f"not balanced: {p.placed.placement()}"
        p.settle()
        p.run(batch, rows=60)
        batch += 1
    p.settle()
    p.run(batch, rows=60)
    browser.wait(lambda: rows_of(browser, "recovery")[0]["all standbys after"] != "–")
    browser.wait(lambda: browser.figures()["batches"] == f"{batch + 1}")
    assert browser.figures()["rebalances"] == f"{p.placed.stats.rebalances:,}"
    assert browser.figures()["promotions"] == f"{p.placed.stats.promotions:,}"
    assert browser.figures()["imbalance"] == f"{p.placed.metrics()['imbalance-max-mean']:.2f}"
    assert browser.errors() == []
    p.check()

    p.placed.close()
    browser.wait(lambda: browser.texts("#state-word") == ["ended"])
    assert not browser.one("#gone").is_displayed()
