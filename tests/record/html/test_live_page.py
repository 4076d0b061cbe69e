"""The live page in Chromium: it shows events as they come, keeps what the reader has chosen, and says when the driver
is gone. The stream here is told by the test."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from taskplace.record.events import ExecutorLost, Finish
from taskplace.record.html import RunRecorder
from taskplace.record.html.live import LivePage
from taskplace.record.html.values import CopyLag, Figure, InputRow, InstanceRow, Now, Reason, Report, State
from tests.support.browser import ActionChains, Keys
from tests.support.run_events import SUMMARY, Clock, tell_events


@dataclass
class Told:
    """A stream whose events are those that the test tells `recorder`; `rows` and `copies` are what is there now."""

    recorder: RunRecorder = field(default_factory=lambda: RunRecorder("flights", clock=Clock()))
    rows: tuple[InstanceRow, ...] = ()
    copies: tuple[CopyLag, ...] = ()
    inputs: tuple[InputRow, ...] = ()
    figures: tuple[Figure, ...] = ()
    generation: int = 0

    def report(self) -> Report:
        return self.recorder.report()

    def now(self) -> Now:
        state = self.recorder.end or State("running", "batch 7 runs", "good", live=True)
        known = self.recorder.version, f"{self.generation}"
        return Now(state, self.rows, self.copies, *known, inputs=self.inputs, figures=self.figures)

    def reasons(self) -> tuple[Reason, ...]:
        return (Reason("0_0", "executor-0", f"of generation {self.generation}", "0_0 is active"),)

    def tell(self, until: float, after: float = -1.0) -> None:
        tell_events(self.recorder, until=until, after=after)


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
    assert "lost executor-1 in batch 1" in text(browser, "#timeline tbody")
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
    told.inputs = (InputRow("flights", 3, 1_200, 1_300, 100, 14), InputRow("flights", 4, None, 7))
    told.figures = (Figure("input lag", "100"), Figure("batches", "5"))
    browser.wait(lambda: "1,200" in text(browser, "#input tbody"))
    cells = [cell.replace("\u00a0", " ") for cell in browser.texts("#input tbody tr > *")]
    assert cells == ["flights", "3", "1,200", "1,300", "100", "14.0 s", "flights", "4", "–", "7", "–", "–"]
    assert {"input lag": "100", "batches": "5"}.items() <= browser.figures().items()


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


def zoom(browser, section):
    """Drag over the first half of a chart's time."""
    over = browser.wait(lambda: browser.one(f"#{section} .u-over"))
    browser.script("arguments[0].scrollIntoView({block: 'center'})", over)
    half = over.size["width"] // 2
    mouse = ActionChains(browser.driver, duration=50)
    mouse.move_to_element_with_offset(over, 5 - half, 0).click_and_hold().move_by_offset(half - 5, 0)
    mouse.release().perform()


def shown_time(browser, section):
    """The time that a chart shows."""
    return browser.one(f"#{section} .chart").get_attribute("aria-description")


def test_a_zoom_stays_until_a_double_click(browser, told, served):
    told.tell(until=12.0)
    browser.open(served.url)
    browser.wait(lambda: browser.figures()["batches"] == "2 of 4")
    whole = browser.wait(lambda: shown_time(browser, "batches"))
    zoom(browser, "batches")
    browser.wait(lambda: shown_time(browser, "batches") != whole)
    zoomed = shown_time(browser, "batches")
    assert shown_time(browser, "timeline") == shown_time(browser, "lag") == zoomed  # all charts together
    browser.one("#theme").click()
    told.tell(until=20.0, after=12.0)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    assert {shown_time(browser, section) for section in ("batches", "timeline", "lag")} == {zoomed}
    ActionChains(browser.driver).double_click(browser.one("#batches .u-over")).perform()
    browser.wait(lambda: shown_time(browser, "batches") != zoomed)
    assert (
        shown_time(browser, "batches").split(" to ")[1] > whole.split(" to ")[1]
    )  # with what came meanwhile
    assert browser.errors() == []


def test_search_text_and_focus_stay(browser, told, served):
    told.tell(until=8.5)
    browser.open(served.url)
    browser.wait(lambda: browser.figures()["executors lost"] == "1")
    search = browser.one("#moves input[type=search]")  # few rows need no search, so it is not in view
    browser.script("arguments[0].value = 'promotion'; arguments[0].dispatchEvent(new Event('input'))", search)
    browser.wait(lambda: "2 of 3 moves" in text(browser, "#moves output"))
    browser.script("arguments[0].focus()", search)
    told.tell(until=16.0, after=8.5)
    browser.wait(lambda: browser.figures()["batches"] == "3 of 4")
    assert browser.focus() == "Search moves"
    browser.press(" 0_3")
    browser.wait(lambda: "1 of 3 moves" in text(browser, "#moves output"))
    link = browser.all("#timeline tbody button")[-1]
    browser.script("arguments[0].focus()", link)
    assert browser.focus() == "Show the placement of generation 1"
    told.tell(until=18.0, after=16.0)
    browser.wait(lambda: browser.texts("#timeline tbody button")[0] == "generation 3")  # the newest is first
    assert browser.focus() == "Show the placement of generation 1"
    browser.press(Keys.ENTER)
    browser.wait(lambda: "start: 4 tasks on 3 instances" in text(browser, "#placement .lead"))


def test_what_was_opened_stays_open(browser, told, served):
    browser.open(served.url)
    browser.wait(lambda: "of generation 0" in text(browser, "#reasons tbody"))
    browser.script("arguments[0].click()", browser.one("#reasons tbody summary"))
    told.generation = 1
    browser.wait(lambda: "of generation 1" in text(browser, "#reasons tbody"))
    assert browser.one("#reasons tbody pre").is_displayed()


def test_an_executor_that_is_lost_stays_in_the_table(browser, told, served):
    told.tell(until=100.0)
    told.recorder.failure(ExecutorLost("executor-9", 1, 2))
    told.rows = (InstanceRow("executor-0", 3, 0, 0),)
    browser.open(served.url)
    browser.wait(lambda: "executor-9" in text(browser, "#now tbody"))
    assert any(row.startswith("executor-9lost") for row in browser.texts("#now tbody tr"))
    assert browser.texts("#now h2") == ["Executors"]


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
    again.cut()
    browser.wait(lambda: browser.one("#gone").is_displayed())
    other = Told(RunRecorder("another driver", clock=Clock()))
    other.tell(until=12.0)  # as many events as before
    third = LivePage(other, port=first.port)
    browser.wait(lambda: browser.one("h1").text == "another driver")
    third.close()


def test_an_end_is_no_loss_of_the_driver(browser, told):
    page = LivePage(told)
    told.tell(until=20.0)
    browser.open(page.url)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    told.recorder.summary(SUMMARY)
    told.recorder.add(Finish(exit_code=0))
    page.close()
    browser.wait(lambda: text(browser, "#state-word") == "checked")
    browser.wait(
        lambda: browser.figures()["check"] == "right"
    )  # its last report came, although its server is gone
    assert browser.script("return document.body.dataset.ended") == ""
    assert not browser.one("#gone").is_displayed()
    assert browser.errors() == []


def test_it_asks_its_own_server_only(browser, told, served):
    told.tell(until=20.0)
    browser.open(served.url)
    browser.wait(lambda: browser.figures()["batches"] == "4 of 4")
    asked = browser.requests()
    assert asked[0] == served.url
    assert all(url.startswith(served.url) for url in asked)
