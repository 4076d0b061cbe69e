"""The page that a run leaves behind, however it ends, and its live page; with a whole `Placed` without Spark."""

from __future__ import annotations

import json
import re
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from taskplace.errors import TaskplaceError
from taskplace.record import PlainReporter
from taskplace.spark.live_run import RunReport
from taskplace.spec.application import ReportSettings
from tests.support.run_events import SUMMARY
from tests.support.word_counts import counts, words


class Lines(PlainReporter):
    """A reporter that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def _write(self, *lines: str) -> None:
        self.notes += lines


@pytest.fixture
def run(world, tmp_path):
    """Runs one batch within a `RunReport`, ends as it is told to, and returns the lines and the page's data."""

    def run(error: BaseException | None = None, **settings):
        lines, page = Lines(), tmp_path / "pages" / "run.html"
        world.come(1)
        try:
            with RunReport(ReportSettings(html=str(page), **settings), "words", lines) as report:
                placed = world.open(counts(world), reporter=report.reporter)
                report.follow(placed.live(report.recorder))
                world.batch(placed, 0, **{"in": words(*"abcdef")})
                if error is not None:
                    raise error
                report.reporter.summary(SUMMARY)
        except BaseException as raised:
            assert raised is error
        found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page.read_text())
        return lines.notes, json.loads(found[1])

    return run


def test_a_run_that_has_ended(run, tmp_path):
    notes, data = run()
    assert notes[-1] == f"page: {tmp_path / 'pages' / 'run.html'}"
    assert (data["title"], data["state"]["word"]) == ("words", "checked")
    assert data["samples"]["rows"] == [6]
    assert [reason["task"] for reason in data["reasons"]] == ["0_0", "0_1"]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (TaskplaceError("batch 1 failed: token=hunter2"), ("failed", "batch 1 failed: token=(hidden)")),
        (ValueError("the row 4711"), ("failed", "ValueError")),  # of others: may have values of rows
        (KeyboardInterrupt(), ("interrupted", "it goes on after its last committed batch")),
    ],
)
def test_a_run_that_fails_or_is_interrupted_has_its_page_as_well(run, error, state):
    notes, data = run(error)
    assert (data["state"]["word"], data["state"]["text"]) == state
    assert data["samples"]["rows"] == [6]
    assert notes[-1].startswith("page: ")


def test_a_page_that_cannot_be_written_at_the_end_does_not_hide_the_error(run, tmp_path, monkeypatch):
    lines = Lines()
    page = tmp_path / "run.html"
    error = TaskplaceError("batch 1 failed")
    with (
        pytest.raises(TaskplaceError, match="batch 1 failed"),
        RunReport(ReportSettings(html=str(page)), "words", lines),
    ):
        page.mkdir()
        raise error
    assert lines.notes[-1].startswith("the page was not written: ")


def test_its_live_page_ends_with_it(world):
    lines = Lines()
    with RunReport(ReportSettings(ui_port=0), "words", lines) as report:
        placed = world.open(counts(world), reporter=report.reporter)
        report.follow(placed.live(report.recorder))
        (url,) = (note.removeprefix("live page: ") for note in lines.notes)
        world.batch(placed, 0, **{"in": words("a")})
        placed.close()
        with urlopen(
            f"{url}report.json", timeout=30
        ) as answer:  # it outlives the stream, and shows its check
            assert json.load(answer)["samples"]["rows"] == [1]
        report.reporter.summary(SUMMARY)
        with urlopen(f"{url}news", timeout=30) as answer:
            assert json.loads(answer.readline()[6:])["state"]["word"] == "checked"
    with pytest.raises(URLError):
        urlopen(url, timeout=30)
