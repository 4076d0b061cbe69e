"""The warning of late rows: how many, why, and what to set."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from taskplace.record.events import Totals
from taskplace.spark.driver.batch import Listeners


@pytest.mark.parametrize(
    "readers, remedy",
    [
        (("a", "b"), "raise it, or a window's `grace`"),
        (("a",), "What Spark has not read yet of 'b' is not known here"),
    ],
)
def test_a_warning_says_how_many_rows_why_and_what_to_set(caplog, readers, remedy):
    definition: Any = SimpleNamespace(
        checkpoint="/c", event_times=dict.fromkeys("ab"), readers=dict.fromkeys(readers)
    )
    listeners = Listeners(definition, None)
    with caplog.at_level(logging.WARNING):
        for batch, late in enumerate((0, 1200, 5, 7)):
            reports = {0: SimpleNamespace(late=late), 1: SimpleNamespace(late=0)}
            done: Any = SimpleNamespace(id=batch, reports=reports)
            listeners.warn_of_late_rows(done, Totals(0, 9000, 1200))
    (text,) = caplog.messages  # damped: a line at once, the next after a while
    assert text.startswith(
        "/c: batch 1 dropped 1,200 late rows, which the watermark had passed; 1,200 since the"
    )
    assert remedy in text and "sources.a.delay, sources.b.delay" in text
