"""What a run's recorder remembers: totals, recoveries, placements; bounded, and the same from event lines."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from taskplace.record.events import BatchDone, Finish, InstanceView, LateRows, Rebalanced
from taskplace.record.html import RunRecorder, report_of_lines
from taskplace.record.html.of_run import MOST_BATCHES
from taskplace.record.json_lines import JsonReporter, read_run_lines
from tests.support.run_events import BEGAN, SUMMARY, Clock, tell_events

BUILT = SimpleNamespace(name="flights", subtopologies=(1,), tasks=lambda: [1, 2, 3, 4])


@pytest.fixture
def recorder():
    return RunRecorder("flights", clock=Clock())


def figures(report):
    return {figure.name: figure.value for figure in report.figures}


def test_the_figures_of_a_run_that_goes_on_are_its_totals(recorder):
    tell_events(recorder)
    found = figures(recorder.report())
    assert found["batches"] == "4 of 4"
    assert found["rows"] == "4,600"
    assert found["rebalances"] == "3"
    assert found["executors lost"] == "1"
    assert found["promotions"] == "2"
    assert found["records replayed"] == "70"
    assert found["restored from scratch"] == "0"
    assert found["late rows"] == "1,200"
    assert recorder.report().state.live


def test_the_figures_of_a_run_that_has_ended_are_those_of_its_summary(recorder):
    tell_events(recorder)
    recorder.summary(replace(SUMMARY, rows=5_000, replayed_records=71))
    report = recorder.report()
    assert figures(report)["rows"] == "5,000"
    assert figures(report)["records replayed"] == "71"
    assert figures(report)["check"] == "right"
    assert (report.state.word, report.state.tone, report.state.live) == ("checked", "good", False)
    assert ("time", "31.0 s") in report.facts


@pytest.mark.parametrize(
    ("late", "value", "note"),
    [
        (LateRows(1_200, 3), "1,200", "since the checkpoint was created; 3 since this driver started"),
        (LateRows(40, 3, since=7), "40", "since batch 7; 3 since this driver started"),
    ],
)
def test_late_rows_are_those_over_restarts_and_say_since_when(recorder, late, value, note):
    recorder.summary(replace(SUMMARY, late=late))
    [figure] = [one for one in recorder.report().figures if one.name == "late rows"]
    assert (figure.value, figure.note) == (value, note)
    facts = dict(recorder.report().facts)
    assert facts["late rows since this driver started"] == "3"
    if late is not None:
        assert facts[f"late rows {note.partition(';')[0]}"] == value


def test_a_recovery_has_its_stages(recorder):
    tell_events(recorder)
    [recovery] = recorder.report().recoveries
    assert (recovery.instance, recovery.batch, recovery.tasks, recovery.promoted) == ("executor-1", 1, 2, 2)
    assert (recovery.planned, recovery.committed, recovery.whole) == (0.5, 4.0, 12.0)
    assert (recovery.replayed, recovery.scratch) == (70, 0)


def test_lags_are_series_with_the_roles_of_the_copies(recorder):
    tell_events(recorder)
    report = recorder.report()
    assert report.samples.lag == (0, 400, 90, 0)
    lags = {(copy.task, copy.instance): (copy.role, copy.values) for copy in report.copies}
    assert lags == {
        ("0_0", "executor-2"): ("standby", (0, 250, 90, 0)),
        ("0_1", "executor-2"): ("standby", (0, 150, 0, 0)),
    }


def test_each_rebalance_is_a_step_and_its_moves_are_listed(recorder):
    tell_events(recorder)
    report = recorder.report()
    assert [step.label for step in report.steps] == ["generation 1", "generation 2", "generation 3"]
    assert report.steps[2].changes == {}
    assert {(move.task, move.role, move.to) for move in report.moves} == {
        ("0_2", "promotion", "executor-0"),
        ("0_3", "promotion", "executor-2"),
        ("0_0", "standby", "executor-2"),
    }
    assert [one.kind for one in report.timeline] == ["rebalance", "loss", "rebalance", "rebalance"]


def test_a_lost_executor_stays_among_the_instances(recorder):
    tell_events(recorder)
    states = {row.id: row.state for row in recorder.report().now}
    assert states == {"executor-0": "", "executor-2": "", "executor-1": "lost"}


@pytest.mark.parametrize(
    ("end", "word", "text"),
    [
        (Finish(exit_code=1, error="batch 4: disk full"), "failed", "batch 4: disk full"),
        (Finish(exit_code=130), "interrupted", "it goes on after its last committed batch"),
        (Finish(exit_code=0), "ended", ""),
    ],
)
def test_the_end_is_said(recorder, end, word, text):
    tell_events(recorder)
    recorder.add(end)
    state = recorder.report().state
    assert (state.word, state.text, state.live) == (word, text, False)


def test_a_check_that_found_differences_is_said(recorder):
    recorder.summary(replace(SUMMARY, ok=False, check="3 rows differ"))
    recorder.add(Finish(exit_code=0))
    assert (recorder.report().state.word, recorder.report().state.tone) == ("check failed", "bad")
    assert figures(recorder.report())["check"] == "wrong"


def test_a_long_run_stays_small(recorder):
    view = (InstanceView("a", 1, 0, 0, 0),)
    for number in range(3 * MOST_BATCHES):
        recorder.clock.set(BEGAN + number)
        recorder.batch(BatchDone(number, None, 10, 0.5, {}, view, 1))
        recorder.rebalance(Rebalanced(number, number, "again", assignment={"a": {"active": ("0_0",)}}))
    report = recorder.report()
    assert len(report.samples.at) <= MOST_BATCHES
    assert report.samples.number[-1] == 3 * MOST_BATCHES - 1
    assert list(report.samples.number) == sorted(report.samples.number)
    assert figures(report)["rows"] == f"{30 * MOST_BATCHES:,}"
    assert len(report.to_json()) < 1024 * 1024
    assert any(line.startswith("samples of ") for line in report.left_out)


def test_the_lines_of_a_run_give_the_same_report(monkeypatch):
    stream = io.StringIO()
    lines = JsonReporter(stream)
    lines.start(application="flights", checkpoint="/c", built=BUILT)
    began = read_run_lines(stream.getvalue(), "x")[0].at
    recorder = RunRecorder("flights", began=began)
    for reporter in (recorder, lines):
        tell_events(reporter)
        reporter.note("comparing")
        reporter.summary(SUMMARY)
    recorder.add(Finish(exit_code=0))
    lines.finish(0)
    read = report_of_lines(read_run_lines(stream.getvalue(), "x"))
    whole = recorder.report()
    *ours, note = whole.timeline
    assert dataclasses.replace(read, made=0.0, timeline=ours) == dataclasses.replace(
        whole, made=0.0, timeline=ours
    )
    assert read.timeline[:-1] == tuple(ours) and read.timeline[-1].text == note.text


def test_the_lines_of_a_killed_driver_have_no_end():
    stream = io.StringIO()
    lines = JsonReporter(stream)
    lines.start(application="flights", checkpoint="/c", built=BUILT)
    tell_events(lines)
    report = report_of_lines(read_run_lines(stream.getvalue()[:-40], "x"))
    assert report.state.word == "cut off"
    assert figures(report)["batches"] == "3 of 4"
