"""The live page of a whole `Placed` without Spark, and the page that a run leaves behind, however it ends."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from taskplace.errors import InputError, TaskplaceError
from taskplace.record import PlainReporter
from taskplace.record.html import RunRecorder
from taskplace.spark.driver import operations
from taskplace.spark.live_run import LiveRun, RunReport
from taskplace.spec.application import ReportSettings
from tests.support.operators import turn
from tests.support.pages import run as run_page
from tests.support.run_events import SUMMARY
from tests.support.word_counts import counts, words

STANDBY = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)


@pytest.fixture
def placed(world):
    world.come(1)
    placed = world.open(counts(world), config=STANDBY)
    yield placed
    placed.close()


def asked(served, what=""):
    with urlopen(f"{served.url}{what}", timeout=30) as answer:
        return answer.read().decode()


def news(served) -> dict:
    """The first news that a page gets."""
    with urlopen(f"{served.url}news", timeout=30) as answer:
        line = answer.readline().decode()
    assert line.startswith("data: ")
    return json.loads(line.removeprefix("data: "))


def test_it_shows_what_happens_from_its_beginning(world, placed):
    served = placed.serve_ui()
    assert served.url.startswith("http://127.0.0.1:")
    assert asked(served).startswith("<!doctype html>")
    assert news(served)["state"]["word"] == "running"
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    report = json.loads(asked(served, "report.json"))
    assert report["samples"]["rows"] == [8]
    assert [step["label"] for step in report["steps"]] == ["generation 1"]
    assert report["reasons"] == []
    reasons = json.loads(asked(served, "reasons.json"))
    assert [reason["task"] for reason in reasons] == ["0_0", "0_1"]
    assert reasons[0]["text"].startswith("0_0")


def test_news_have_the_lags_of_now(world, placed):
    served = placed.serve_ui()
    for number in range(2):
        world.batch(placed, number, **{"in": words(*"abcdefgh")})
    turn(placed)
    before = news(served)
    assert sum(copy["last"] for copy in before["copies"]) == 8
    assert {row["id"]: row["active"] for row in before["rows"]} == {"executor-1": 1, "executor-2": 1}
    assert before["state"]["text"].startswith("batch 1 took")
    world.follow(placed)
    after = news(served)
    assert after["copies"] == []
    assert after["version"] == before["version"]


def test_reasons_are_those_of_explain_and_made_once_an_assignment_and_minute(world, placed):
    world.batch(placed, 0, **{"in": words("a")})
    now = [0.0]
    live = LiveRun(placed._runner, RunRecorder("words"), clock=lambda: now[0])
    first = live.reasons()
    assert first[0].why == placed.explain("0_0").why
    texts = {each.task: each.text for each in live.whole_report().reasons}
    assert texts == {task: str(placed.explain(task)) for task in ("0_0", "0_1")}
    assert live.reasons() is first
    now[0] = 61.0
    assert live.reasons() is not first
    assert live.now().explained == "1, 1"


def test_the_code_of_the_docs(world, placed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_page("docs/report.md", {"placed": placed})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
    assert "two tasks" in (tmp_path / "plan.html").read_text()


def test_a_page_that_begins_later_has_the_assignment_in_force(world, placed):
    world.batch(placed, 0, **{"in": words("a")})
    report = json.loads(asked(placed.serve_ui(), "report.json"))
    assert [step["label"] for step in report["steps"]] == ["generation 1"]
    assert report["timeline"] == []


def test_whoever_looks_is_told_of_the_end(world, placed):
    served = placed.serve_ui()
    world.batch(placed, 0, **{"in": words("a")})
    with urlopen(f"{served.url}news", timeout=30) as answer:
        answer.readline()
        placed.close()
        rest = answer.read().decode()
    last = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")][-1]
    assert (last["now"]["state"]["word"], last["report"]["state"]["live"]) == ("ended", False)
    assert last["report"]["samples"]["rows"] == [1]
    assert "event: end" in rest
    with pytest.raises(URLError):
        asked(served)
    placed.close()


def test_an_address_that_cannot_be_used_is_refused(placed):
    with pytest.raises(InputError, match=r"^serve_ui: found '127.0.0.1:-1', expected an address"):
        placed.serve_ui(port=-1)
    with pytest.raises(InputError, match=r"^serve_ui: found '203.0.113.1:0 \("):
        placed.serve_ui(host="203.0.113.1")


# -- the page of a run


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


def test_a_page_that_cannot_be_written_at_the_end_does_not_hide_the_error(tmp_path):
    lines = Lines()
    page = tmp_path / "run.html"
    error = TaskplaceError("batch 1 failed")
    report = RunReport(ReportSettings(html=str(page)), "words", lines)
    with pytest.raises(TaskplaceError, match="batch 1 failed"), report:
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
        served = SimpleNamespace(url=url)  # it outlives the stream, and shows its check
        assert json.loads(asked(served, "report.json"))["samples"]["rows"] == [1]
        report.reporter.summary(SUMMARY)
        assert news(served)["state"]["word"] == "checked"
    with pytest.raises(URLError):
        urlopen(url, timeout=30)
