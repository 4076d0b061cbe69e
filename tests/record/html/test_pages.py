"""Pages of a run, of a simulation and of a large plan in Chromium: offline, with their numbers, in both themes."""

from __future__ import annotations

import pytest

import taskplace
from taskplace.record.html import RunRecorder, report_of_plan, write_page
from taskplace.record.html.values import Reason
from taskplace.wording import duration
from tests.support.browser import Keys
from tests.support.report_problems import cluster
from tests.support.run_events import SUMMARY, Clock, events, tell_events

REASONS = tuple(
    Reason(f"0_{k}", f"executor-{k % 2}", f"reason {k}", f"0_{k} is active on executor-{k % 2}")
    for k in range(12)
)
#: The cells of a section's first table, by the names of the columns.
ROWS = """return [...document.querySelectorAll(`#${arguments[0]} table.rows tbody tr`)].map((row) =>
  Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent.trim()])))"""
#: The texts in view whose contrast with what is behind them is less than 4.5, or 3 if they are large (WCAG 2, AA).
FAINT = """
const channels = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const shade = (text) => channels(text).slice(0, 3).map((v) => linear(v / 255))
  .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const paint = getComputedStyle(one).backgroundColor;
    if (!paint.startsWith('rgba(') || channels(paint)[3] === 1) return paint;
  }
  return 'rgb(255, 255, 255)';
};
const found = [];
const walker = document.createTreeWalker(document.querySelector('body'), NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const one = walker.currentNode.parentElement;
  const text = walker.currentNode.textContent.trim();
  if (!text || !one.checkVisibility({ visibilityProperty: true })) continue;
  if (one.matches(':disabled, script, style, .skip')) continue;
  const style = getComputedStyle(one);
  const [a, b] = [shade(style.color), shade(behind(one))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${text}`);
}
return found"""


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    recorder = RunRecorder("flights", clock=Clock())
    tell_events(recorder)
    recorder.summary(SUMMARY)
    return write_page(recorder.report(REASONS), tmp_path_factory.mktemp("pages") / "run.html")


@pytest.fixture
def opened(browser, run_page):
    browser.open(run_page)
    return browser


def test_it_opens_offline_and_draws_every_chart(opened, run_page):
    for section in ("timeline", "batches", "lag", "balance"):
        opened.wait(lambda section=section: opened.all(f"#{section} .chart canvas"))
    assert opened.requests() == [run_page.as_uri()]
    assert opened.errors() == []


def test_batches_losses_and_recoveries_are_those_of_the_events(opened):
    told = [event for _, event in events() if type(event).__name__ == "BatchDone"]
    batches = opened.script(ROWS, "batches")
    assert [(row["batch"], row["rows"]) for row in batches] == [
        (str(event.batch_id), f"{event.rows:,}") for event in reversed(told)
    ]
    [loss] = [row for row in opened.script(ROWS, "timeline") if row["kind"] == "loss"]
    assert loss["what"].startswith("lost executor-1 in batch 1 with 2 active tasks")
    assert opened.texts("#batches output") == [f"{len(told)} batches"]
    assert opened.texts("#lag output") == ["2 copies"]
    [recovery] = opened.script(ROWS, "recovery")
    assert (recovery["executor"], recovery["promoted"], recovery["replayed in its batch"]) == (
        "executor-1",
        "2",
        "70",
    )
    assert (recovery["new places after"], recovery["all standbys after"]) == ("0.5 s", "12.0 s")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_has_enough_contrast(browser, run_page, dark):
    browser.open(run_page, dark=dark)
    for details in browser.all("details.data:not([open]) > summary"):
        browser.script("arguments[0].click()", details)
    assert browser.script(FAINT) == []


# -- a simulation

#: The cells of a section's first table, a text for each row.
CELLS = """return [...document.querySelector(`${arguments[0]} table.rows tbody`).rows]
  .map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join("|"))"""


@pytest.fixture
def simulated(browser, simulation_page):
    browser.open(simulation_page)
    return browser


def test_the_figures_are_those_of_the_trajectory(simulated, trajectory):
    figures = simulated.figures()
    assert figures["rounds"] == str(len(trajectory.rounds))
    assert figures["moves"] == str(trajectory.moved)
    assert figures["promotions"] == str(trajectory.promoted)
    assert figures["instances lost"] == "1"
    lags = [sum(sum(of.values()) for of in one.lags.values()) for one in trajectory.rounds]
    assert figures["largest lag"] == f"{max(lags):,}"
    assert simulated.texts("#state-word") == ["stable"]
    assert simulated.document()["samples"]["lag"] == lags


def test_the_charts_are_drawn(simulated):
    for section in ("timeline", "lag", "balance"):
        simulated.wait(lambda section=section: simulated.all(f"#{section} .chart canvas"))
    assert simulated.errors() == []


def test_a_loss_is_on_the_timeline_and_its_recovery_in_the_table(simulated, trajectory):
    rows = simulated.script(CELLS, "#timeline")
    assert any("loss|lost executor-1 in round" in row for row in rows)
    lost = next(one for one in trajectory.rounds if any(event.kind == "kill" for event in one.events))
    [recovery] = simulated.document()["recoveries"]
    assert recovery["promoted"] == lost.promoted
    [row] = [text.split("|") for text in simulated.script(CELLS, "#recovery")]
    assert row[0] == "executor-1"
    assert row[4] == str(lost.promoted)
    assert row[7] == duration(recovery["whole"])


def test_a_chart_is_read_with_the_arrow_keys(simulated, trajectory):
    chart = simulated.wait(lambda: simulated.one("#lag .chart"))
    simulated.wait(lambda: simulated.all("#lag .chart canvas"))
    simulated.press(Keys.HOME, on=chart)
    first = sum(sum(lags.values()) for lags in trajectory.rounds[0].lags.values())
    assert chart.get_attribute("aria-valuetext").startswith(f"round 0: {first:,} records in all")
    simulated.press(Keys.END, on=chart)
    assert chart.get_attribute("aria-valuetext").startswith(f"round {len(trajectory.rounds) - 1}: ")


def test_a_step_is_shown_from_the_timeline(simulated):
    button = simulated.all("#timeline tbody button")[-1]
    label = button.text
    simulated.script("arguments[0].click()", button)
    after = simulated.one("#placement select[aria-label=After]")
    assert simulated.script("return arguments[0].selectedOptions[0].textContent", after) == label
    simulated.one("#placement button[aria-label='One step on']").click()
    assert simulated.script("return arguments[0].selectedOptions[0].textContent", after) != label


# -- a large plan

MEBIBYTE = 1024 * 1024


def test_a_thousand_tasks_on_fifty_instances(browser, tmp_path):
    problem = taskplace.Problem.from_dict(cluster(tasks=1_000, instances=50))
    path = write_page(report_of_plan(taskplace.plan(problem), problem), tmp_path / "large.html")
    assert path.stat().st_size < 2 * MEBIBYTE
    browser.open(path)
    assert browser.one("#placement input[type=checkbox]").is_selected()  # only the changes, to begin with
    browser.one("#placement input[type=checkbox]").click()
    browser.wait(lambda: "1,000 of 1,000 tasks" in browser.one("#placement output").text)
    assert 0 < len(browser.all(".matrix .space .line")) < 60  # those in view
    browser.press(Keys.CONTROL, Keys.END, on=browser.one(".matrix"))
    last = max(problem.tasks, key=lambda task: task.id).id
    browser.wait(lambda: browser.texts("#placement .reading")[0].startswith(f"task {last} on executor-49"))
    browser.press("83_3", on=browser.one("#placement input[type=search]"))
    browser.wait(lambda: browser.one("#placement output").text.startswith("1 of 1,000 tasks"))
    assert browser.errors() == []
