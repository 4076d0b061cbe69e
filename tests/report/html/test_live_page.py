"""The live page in Chromium: it shows events as they come, keeps what the reader has chosen, and says when the driver
is gone. The stream here is told by the test."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from taskplace.report.html import RunRecorder
from taskplace.report.html.live import LivePage
from taskplace.report.html.values import CopyLag, InstanceRow, Now, Reason, Report, State
from taskplace.report.run_lines import Ended
from tests.support.run_events import Clock, tell


@dataclass
class Told:
    """A stream whose events are those that the test tells `recorder`; `rows` and `copies` are what is there now."""

    recorder: RunRecorder = field(default_factory=lambda: RunRecorder("flights", clock=Clock()))
    rows: tuple[InstanceRow, ...] = ()
    copies: tuple[CopyLag, ...] = ()
    generation: int = 0

    def report(self) -> Report:
        return self.recorder.report()

    def now(self) -> Now:
        state = self.recorder.end or State("running", "batch 7 runs", "good", live=True)
        return Now(state, self.rows, self.copies, self.recorder.version, f"{self.generation}")

    def reasons(self) -> tuple[Reason, ...]:
        return (Reason("0_0", "executor-0", f"of generation {self.generation}", "0_0 is active"),)

    def tell(self, until: float, after: float = -1.0) -> None:
        tell(self.recorder, self.recorder.clock.set, until=until, after=after)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def served(told):
    page = LivePage(told)
    yield page
    page.close()


def text(browser, selector):
    return " ".join(browser.texts(selector))


def test_events_appear_as_they_happen(browser, told, served):
    browser.open(served.url)
    browser.wait(lambda: text(browser, "#state-text") == "batch 7 runs")
    assert browser.figures()["batches"] == "0"
    told.tell(until=5.0)
    browser.wait(lambda: browser.figures()["batches"] == "1 of 4")
    told.tell(until=8.0, after=5.0)
    browser.wait(lambda: browser.figures()["executors lost"] == "1")
    assert "executor-1 lost in batch 1" in text(browser, "#timeline tbody")
    told.tell(until=20.0, after=8.0)
    browser.wait(lambda: "12.0 s" in text(browser, "#recovery tbody"))
    assert browser.errors() == []


def test_lags_and_instances_of_now_need_no_event(browser, told, served):
    told.tell(until=20.0)
    told.rows = (InstanceRow("executor-0", 3, 1, 0, 77),)
    told.copies = (CopyLag("0_3", "executor-0", "warm-up", 77, 77, note="about 8 s left"),)
    browser.open(served.url)
    browser.wait(lambda: "about 8 s left" in text(browser, "#lag tbody"))
    told.copies = (CopyLag("0_3", "executor-0", "warm-up", 12, 12, note="about 1 s left"),)
    browser.wait(lambda: "about 1 s left" in text(browser, "#lag tbody"))
    assert browser.figures()["batches"] == "4 of 4"


def test_what_the_reader_has_chosen_stays(browser, told, served):
    told.tell(until=8.5)
    browser.open(served.url)
    search = browser.one("#moves input[type=search]")
    browser.script("arguments[0].value = 'promotion'; arguments[0].dispatchEvent(new Event('input'))", search)
    browser.wait(lambda: "2 of 3 moves" in text(browser, "#moves output"))
    chooser = "#placement select[aria-label=After]"
    browser.script(
        "arguments[0].value = '0'; arguments[0].dispatchEvent(new Event('change'))", browser.one(chooser)
    )
    told.tell(until=20.0, after=8.5)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    assert "2 of 3 moves" in text(browser, "#moves output")
    assert (
        browser.script("return arguments[0].selectedOptions[0].textContent", browser.one(chooser))
        == "generation 1"
    )


def test_reasons_are_asked_for_when_there_is_a_new_assignment(browser, told, served):
    told.generation = 1
    browser.open(served.url)
    browser.wait(lambda: "of generation 1" in text(browser, "#reasons tbody"))
    told.generation = 2
    told.tell(until=1.0)
    browser.wait(lambda: "of generation 2" in text(browser, "#reasons tbody"))


def test_it_says_when_the_driver_is_gone_and_when_there_is_one_again(browser, told):
    first = LivePage(told)
    told.tell(until=5.0)
    browser.open(first.url)
    browser.wait(lambda: browser.figures()["batches"] == "1 of 4")
    first.cut()  # as when its process is killed
    browser.wait(lambda: browser.one("#gone").is_displayed())
    assert browser.one("#gone").text.startswith("The driver is gone: it was heard of last at ")
    assert browser.figures()["batches"] == "1 of 4"
    told.tell(until=12.0, after=5.0)
    again = LivePage(told, port=first.port)
    browser.wait(lambda: not browser.one("#gone").is_displayed())
    browser.wait(lambda: browser.figures()["batches"] == "2 of 4")
    again.close()


def test_an_end_is_no_loss_of_the_driver(browser, told):
    page = LivePage(told)
    told.tell(until=20.0)
    browser.open(page.url)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    told.recorder.ended(Ended("ended"))
    page.close()
    browser.wait(lambda: text(browser, "#state-word") == "ended")
    assert not browser.one("#gone").is_displayed()


def test_it_asks_its_own_server_only(browser, told, served):
    told.tell(until=20.0)
    browser.open(served.url)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    asked = browser.requests()
    assert asked[0] == served.url
    assert all(url.startswith(served.url) for url in asked)
