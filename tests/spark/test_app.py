"""When the stream of `taskplace run` ends."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from taskplace.errors import ConfigError
from taskplace.spark.app import trigger_of
from taskplace.spark.driver.definition import read_trigger
from taskplace.spec.application import Settings


def settings(*overrides: str) -> Settings:
    return Settings.from_mapping({"application": {"id": "a", "class": "a:B"}}, overrides)


def test_a_run_ends_with_what_was_there_at_its_start():
    assert read_trigger(trigger_of(settings())) == {"availableNow": True}


def test_with_an_interval_it_goes_on():
    made = trigger_of(settings("spark.trigger.interval=1.5 s"))
    assert read_trigger(made) == {"processingTime": "1500 milliseconds"}


def test_an_interval_is_a_duration():
    with pytest.raises(ConfigError, match=r"^spark\.trigger\.interval: found 'often', expected a duration"):
        settings("spark.trigger.interval=often")
