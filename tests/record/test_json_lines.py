"""Lines of JSON: they fit the published schema, and read again they are the events that were written."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from taskplace.errors import InputError
from taskplace.record import reporter_for
from taskplace.record.events import WarmupChange, WorkProgress
from taskplace.record.json_lines import LINES, SCHEMA, JsonReporter, is_run_lines, read_run_lines, schema
from tests.support.run_events import SUMMARY, events, tell_events

BUILT = SimpleNamespace(name="flights", subtopologies=(1,), tasks=lambda: [1, 2, 3, 4])
WORK = WorkProgress("verifying", 5, 20, "files", seconds=4.0, rate=1.25, eta=12.0)
WARM_UP = WarmupChange("0_3", "executor-1", "begun", 3, 1)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def reporter(stream: io.StringIO) -> JsonReporter:
    return JsonReporter(stream)


@pytest.fixture
def text(reporter: JsonReporter, stream: io.StringIO) -> str:
    reporter.start(application="flights", checkpoint="/c", built=BUILT)
    tell_events(reporter)
    reporter.progress(WORK)
    reporter.warmup(WARM_UP)
    reporter.note("comparing")
    reporter.summary(SUMMARY)
    reporter.close()
    reporter.finish(0)
    return stream.getvalue()


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return list(map(json.loads, stream.getvalue().splitlines()))


def told(text: str) -> list[object]:
    return list(read_run_lines(text, "x")[1:])


def test_each_event_is_a_line_of_the_schema_and_read_as_it_was(text):
    lines = list(map(json.loads, text.splitlines()))
    for line in lines:
        jsonschema.validate(line, schema(), cls=jsonschema.Draft202012Validator)
    assert {line["event"] for line in lines} == {line.__struct_config__.tag for line in LINES}
    assert (lines[0]["schema"], lines[0]["application"], lines[0]["tasks"]) == (SCHEMA, "flights", 4)
    *heard, work, warm_up, note, finish = told(text)
    assert (heard, work, warm_up) == ([event for _, event in events()], WORK, WARM_UP)
    assert (note.text, finish.totals, finish.error) == ("comparing", SUMMARY, None)


def test_every_field_has_a_meaning() -> None:
    parts = schema()["$defs"]
    for line in LINES:
        for name, field in parts[line.__name__]["properties"].items():
            assert name == "event" or field.get("description"), (line, name)


def test_long_work_has_few_lines_and_one_at_its_end(reporter: JsonReporter, stream: io.StringIO) -> None:
    """Short work has no line, unless it is not counted: then it has a line at its begin and at its end."""
    for seconds in range(60):
        reporter.progress(replace(WORK, seconds=float(seconds)))
    reporter.progress(replace(WORK, seconds=60.0, ended=True))
    assert [line["seconds"] for line in written(stream)] == [2, 7, 12, 18, 27, 41, 60]
    reporter.progress(replace(WORK, seconds=1.0, ended=True))
    for ended in (False, True):
        reporter.progress(WorkProgress("starting Spark", seconds=1.0, ended=ended))
    assert [line["name"] for line in written(stream)[7:]] == ["starting Spark", "starting Spark"]


def test_a_run_that_failed_says_why_without_secrets(reporter: JsonReporter, stream: io.StringIO) -> None:
    reporter.note("connecting with\n password=hunter2")
    reporter.finish(1, "batch 3 failed:\n  token=hunter2")
    note, finish = written(stream)
    assert note["text"] == "connecting with password=(hidden)"
    assert (finish["error"], finish["totals"]) == ("batch 3 failed: token=(hidden)", None)


def test_a_reader_that_is_gone_ends_nothing(stream: io.StringIO) -> None:
    stream.close()
    reporter_for("json", stream).note("still running")


def test_lines_of_a_run_are_told_from_other_files(text):
    assert is_run_lines(text)
    assert not is_run_lines('{"schema": "taskplace.plan/1"}')
    assert not is_run_lines("")


def test_what_another_version_wrote_is_read(text):
    newer = text + '{"event":"weather","time":"2026-11-23T12:00:00.000Z","rain":true}\n'
    assert told(newer.replace('"event":"batch"', '"event":"batch","mood":"good"')) == told(text)
    older = text.replace('"lags":{},', "").replace(',"imbalance":1.5', "")
    assert len(told(older)) == len(told(text))
    assert told(text[:-30]) == told(text)[:-1], "its driver was killed"


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
