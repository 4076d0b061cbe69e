"""The lines of a run, read again: events are as they were, and what is no line is refused with its number."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from taskplace.record.json_lines import Ended, JsonReporter, is_run_lines, read_run_lines, retell

from taskplace.errors import InputError
from tests.support.run_events import BEGAN, SUMMARY, Clock, events, tell


class Kept:
    """A reporter that keeps what it is told, with the time of each event."""

    def __init__(self) -> None:
        self.told: list[tuple[float, object]] = []
        self.now = 0.0

    def at(self, now: float) -> None:
        self.now = now

    def keep(self, event: object) -> None:
        self.told.append((self.now, event))

    batch = rebalance = failure = note = summary = ended = keep


BUILT = SimpleNamespace(name="flights", subtopologies=(1,), tasks=lambda: [1, 2, 3, 4])


@pytest.fixture
def text() -> str:
    clock, stream = Clock(), io.StringIO()
    lines = JsonReporter(stream, clock)
    lines.start(application="flights", checkpoint="/c", built=BUILT)
    tell(lines, clock.set)
    lines.note("comparing")
    lines.summary(SUMMARY)
    lines.finish(0)
    return stream.getvalue()


def told(text: str) -> list[tuple[float, object]]:
    kept = Kept()
    retell(read_run_lines(text, "x"), kept, kept.at)
    return kept.told


def test_events_are_told_as_they_were(text):
    run = read_run_lines(text, "x")
    assert (run.title, run.began) == ("flights", BEGAN)
    written = [(BEGAN + at, event) for at, event in events()]
    heard = told(text)
    assert heard[: len(written)] == written
    assert [event for _, event in heard[len(written) :]] == ["comparing", SUMMARY, Ended("ended")]


def test_lines_of_a_run_are_told_from_other_files(text):
    assert is_run_lines(text)
    assert not is_run_lines('{"schema": "taskplace.plan/1"}')
    assert not is_run_lines("")


@pytest.mark.parametrize(
    ("code", "error", "end"),
    [
        (130, "interrupted", Ended("interrupted")),
        (1, "batch 4 failed: disk full", Ended("failed", "batch 4 failed: disk full")),
    ],
)
def test_how_it_ended_is_told(code, error, end):
    stream = io.StringIO()
    lines = JsonReporter(stream, Clock())
    lines.start(application="flights", checkpoint="/c", built=BUILT)
    lines.finish(code, error)
    assert told(stream.getvalue()) == [(BEGAN, end)]


def test_what_a_newer_version_writes_is_passed_over(text):
    newer = text + '{"event":"weather","time":"2026-11-23T12:00:00.000Z","rain":true}\n'
    assert told(newer.replace('"event":"batch"', '"event":"batch","mood":"good"')) == told(text)


def test_what_an_older_version_wrote_is_read(text):
    older = text.replace('"lags":{},', "").replace(',"imbalance":1.5', "")
    assert len(told(older)) == len(told(text))


def test_a_last_line_that_is_cut_off_is_passed_over(text):
    assert told(text[:-30]) == told(text)[:-2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"batch":0', '"batch":"0"', 1), r"^e.jsonl:2: found .*a line of a run"),
        (lambda text: text.replace('{"event":"batch"', '{event:"batch"', 1), r"^e.jsonl:3: found"),
        (lambda text: text.partition("\n")[2], r"^e.jsonl:1: found 'another line', expected the start"),
        (lambda text: "", r"^e.jsonl:1: found 'another line'"),
        (lambda text: "nothing", r"^e.jsonl:1: found"),
    ],
)
def test_what_is_no_line_is_refused_with_its_number(text, change, said):
    with pytest.raises(InputError, match=said):
        read_run_lines(change(text), "e.jsonl")
