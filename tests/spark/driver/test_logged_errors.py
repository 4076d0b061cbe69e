"""Warnings about errors of sources, sinks and processors have no keys of rows."""

from __future__ import annotations

import logging

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.driver.logged_errors import log_failure

LOG = logging.getLogger("taskplace.spark.driver.test")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("the row of customer k7 is bad"), "ValueError"),
        (CheckpointError("/c/manifests/3: damaged"), "CheckpointError: /c/manifests/3: damaged"),
    ],
)
@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_warning_has_the_place_and_a_message_of_taskplace_and_debug_has_all(caplog, error, says, level):
    with caplog.at_level(level, logger=LOG.name):
        try:
            raise error
        except Exception as raised:
            log_failure(LOG, "sink %r failed", "out", error=raised)
    warning = caplog.records[0].getMessage()
    assert warning.startswith(f"sink 'out' failed: {says}, raised in test_logged_errors.py, line ")
    assert ("k7" in caplog.text) is (level == logging.DEBUG and "k7" in str(error))
    assert len(caplog.records) == (1 if level == logging.INFO else 2)
