"""The lines of a run, read again: events are as they were, and what is no line is refused with its number."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from taskplace.errors import InputError
from taskplace.record.json_lines import JsonReporter, is_run_lines, read_run_lines
from tests.support.run_events import SUMMARY, events, tell_events

BUILT = SimpleNamespace(name="flights", subtopologies=(1,), tasks=lambda: [1, 2, 3, 4])


@pytest.fixture
def text() -> str:
    stream = io.StringIO()
    lines = JsonReporter(stream)
    lines.start(application="flights", checkpoint="/c", built=BUILT)
    tell_events(lines)
    lines.note("comparing")
    lines.summary(SUMMARY)
    lines.finish(0)
    return stream.getvalue()


def told(text: str) -> list[object]:
    return list(read_run_lines(text, "x")[1:])


def test_events_are_read_as_they_were(text):
    start = read_run_lines(text, "x")[0]
    assert (start.application, start.tasks) == ("flights", 4)
    *heard, note, finish = told(text)
    assert heard == [event for _, event in events()]
    assert (note.text, finish.totals, finish.error) == ("comparing", SUMMARY, None)


def test_lines_of_a_run_are_told_from_other_files(text):
    assert is_run_lines(text)
    assert not is_run_lines('{"schema": "taskplace.plan/1"}')
    assert not is_run_lines("")


def test_what_a_newer_version_writes_is_passed_over(text):
    newer = text + '{"event":"weather","time":"2026-11-23T12:00:00.000Z","rain":true}\n'
    assert told(newer.replace('"event":"batch"', '"event":"batch","mood":"good"')) == told(text)


def test_what_an_older_version_wrote_is_read(text):
    older = text.replace('"lags":{},', "").replace(',"imbalance":1.5', "")
    assert len(told(older)) == len(told(text))


def test_a_last_line_that_is_cut_off_is_passed_over(text):
    assert told(text[:-30]) == told(text)[:-1]


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
