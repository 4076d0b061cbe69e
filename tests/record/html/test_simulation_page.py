"""The page of a simulation in Chromium: its rounds, losses, lags and balance are the trajectory's."""

from __future__ import annotations

import pytest

from taskplace.wording import duration
from tests.support.browser import Keys

ROWS = """return [...document.querySelector(`${arguments[0]} table.rows tbody`).rows]
  .map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join("|"))"""


@pytest.fixture
def opened(browser, simulation_page):
    browser.open(simulation_page)
    return browser


def test_the_figures_are_those_of_the_trajectory(opened, trajectory):
    figures = opened.figures()
    assert figures["rounds"] == str(len(trajectory.rounds))
    assert figures["moves"] == str(trajectory.moved)
    assert figures["promotions"] == str(trajectory.promoted)
    assert figures["instances lost"] == "1"
    lags = [sum(sum(of.values()) for of in one.lags.values()) for one in trajectory.rounds]
    assert figures["largest lag"] == f"{max(lags):,}"
    assert opened.texts("#state-word") == ["stable"]
    assert opened.document()["samples"]["lag"] == lags


def test_the_charts_are_drawn(opened):
    for section in ("timeline", "lag", "balance"):
        opened.wait(lambda section=section: opened.all(f"#{section} .chart canvas"))
    assert opened.errors() == []


def test_a_loss_is_on_the_timeline_and_its_recovery_in_the_table(opened, trajectory):
    rows = opened.script(ROWS, "#timeline")
    assert any("loss|lost executor-1 in batch" in row for row in rows)
    lost = next(one for one in trajectory.rounds if any(event.kind == "kill" for event in one.events))
    [recovery] = opened.document()["recoveries"]
    assert recovery["promoted"] == lost.promoted
    [row] = [text.split("|") for text in opened.script(ROWS, "#recovery")]
    assert row[0] == "executor-1"
    assert row[4] == str(lost.promoted)
    assert row[7] == duration(recovery["whole"])


def test_a_chart_is_read_with_the_arrow_keys(opened, trajectory):
    chart = opened.wait(lambda: opened.one("#lag .chart"))
    opened.wait(lambda: opened.all("#lag .chart canvas"))
    opened.press(Keys.HOME, on=chart)
    first = sum(sum(lags.values()) for lags in trajectory.rounds[0].lags.values())
    assert chart.get_attribute("aria-valuetext").startswith(f"round 0: {first:,} records in all")
    opened.press(Keys.END, on=chart)
    assert chart.get_attribute("aria-valuetext").startswith(f"round {len(trajectory.rounds) - 1}: ")


def test_a_step_is_shown_from_the_timeline(opened):
    button = opened.all("#timeline tbody button")[-1]
    label = button.text
    opened.script("arguments[0].click()", button)
    after = opened.one("#placement select[aria-label=After]")
    assert opened.script("return arguments[0].selectedOptions[0].textContent", after) == label
    opened.one("#placement button[aria-label='One step on']").click()
    assert opened.script("return arguments[0].selectedOptions[0].textContent", after) != label
