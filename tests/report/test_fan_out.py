"""Events for several reporters: the first one's errors are raised, those of onlookers are not."""

from __future__ import annotations

import pytest
from taskplace.record import PlainReporter
from taskplace.record.reporters import FanOut

from tests.support.run_events import SUMMARY, Clock, tell


class Broken(PlainReporter):
    def note(self, text):
        raise RuntimeError("broken")


class Kept:
    def __init__(self):
        self.heard = []

    def __getattr__(self, name):
        return lambda *event: self.heard.append(name)


def test_all_get_all_events():
    first, other = Kept(), Kept()
    reporters = FanOut(first)
    reporters.add(other)
    tell(reporters, Clock().set)
    reporters.note("x")
    reporters.summary(SUMMARY)
    reporters.close()
    assert first.heard == other.heard
    assert first.heard[-3:] == ["note", "summary", "close"]
    assert set(first.heard) == {"batch", "rebalance", "failure", "note", "summary", "close"}


def test_it_is_false_while_nobody_listens():
    reporters, kept = FanOut(), Kept()
    assert not reporters
    reporters.add(kept)
    assert reporters
    reporters.remove(kept)
    assert not reporters
    assert FanOut(kept)


def test_the_error_of_an_onlooker_is_logged_once(capsys, caplog):
    reporters, kept = FanOut(), Kept()
    reporters.add(Broken(None))
    reporters.add(kept)
    reporters.note("one")
    reporters.note("two")
    assert kept.heard == ["note", "note"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_error_of_the_first_is_raised():
    with pytest.raises(RuntimeError, match="broken"):
        FanOut(Broken(None)).note("one")
