"""Warnings about errors of sources, sinks and processors have no keys of rows."""

from __future__ import annotations

import logging

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.driver.logged_errors import log_failure

LOG = logging.getLogger("taskplace.spark.driver.test")


def _warned(error: Exception, level: int, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(level, logger=LOG.name):
        try:
            raise error
        except Exception as raised:
            log_failure(LOG, "sink %r failed", "out", error=raised)
    return caplog.text


def test_a_warning_has_the_type_and_the_place_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    text = _warned(ValueError("the row of customer k7 is bad"), logging.INFO, caplog)
    assert "sink 'out' failed: ValueError, raised in test_logged_errors.py, line " in text
    assert "k7" not in text
    assert len(caplog.records) == 1


def test_the_text_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    text = _warned(ValueError("the row of customer k7 is bad"), logging.DEBUG, caplog)
    assert "k7" not in caplog.records[0].getMessage()
    assert "ValueError: the row of customer k7 is bad" in text


def test_a_message_of_taskplace_is_part_of_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = _warned(CheckpointError("/c/manifests/3: damaged"), logging.INFO, caplog)
    assert "sink 'out' failed: CheckpointError: /c/manifests/3: damaged, raised in " in text
