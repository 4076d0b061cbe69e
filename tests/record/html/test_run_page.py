"""The page of a run in Chromium: offline, without errors, with the run's numbers, and readable in both themes."""

from __future__ import annotations

import pytest

from taskplace.record.html import RunRecorder, write_page
from taskplace.record.html.values import Reason
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
