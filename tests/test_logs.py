"""Log lines: as JSON and as text, without secrets; and only while asked for.

Warnings that repeat: when they are logged, with which count, and what is forgotten.
"""

from __future__ import annotations

import io
import json
import logging
import logging.config
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from taskplace.logs import (
    FIRST_SECONDS,
    FORGOTTEN_SECONDS,
    MOST_KINDS,
    MOST_SECONDS,
    JsonFormatter,
    RepeatedWarnings,
    TextFormatter,
    fields,
    logging_to,
)

LOG = logging.getLogger("taskplace.test_logs")


def record(message, *values, level=logging.WARNING, **more):
    return LOG.makeRecord(LOG.name, level, __file__, 1, message, values, None, **more)


def test_a_line_of_json_has_the_fields_of_its_event():
    extra = fields("rebalance", batch=3, reason="probing", followup=False, moved_from=None)
    line = JsonFormatter().format(record("rebalance at batch %d", 3, extra=extra))
    found = json.loads(line)
    assert "\n" not in line
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "WARNING",
        "logger": "taskplace.test_logs",
        "message": "rebalance at batch 3",
        "event": "rebalance",
        "batch": 3,
        "reason": "probing",
        "followup": False,
        "moved_from": None,
    }


def raised():
    try:
        raise ValueError("sasl.password=hunter2")
    except ValueError:
        return sys.exc_info()


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()], ids=["json", "text"])
def test_secrets_are_hidden_in_messages_fields_and_tracebacks(formatter):
    leaky = record("connecting with %s", "kafka.ssl.key.password=hunter2", extra=fields("x", token="hunter2"))
    leaky.exc_info = raised()
    line = formatter.format(leaky)
    assert "hunter2" not in line
    assert "kafka.ssl.key.password=(hidden)" in line
    assert "ValueError: sasl.password=(hidden)" in line


@pytest.mark.parametrize("tasks", [False, True])
def test_lines_are_written_within_the_block_only(tasks):
    main, of_tasks = logging.getLogger("taskplace"), logging.getLogger("taskplace.tasks")
    before = (main.level, of_tasks.level, list(main.handlers))
    stream = io.StringIO()
    with logging_to(stream, "text", tasks=tasks):
        LOG.debug("a detail")
        LOG.info("a line")
        of_tasks.debug("a task")
        logging.getLogger("other").error("not ours")
    LOG.warning("later")
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        "INFO taskplace.test_logs: a line",
        *(["DEBUG taskplace.tasks: a task"] if tasks else []),
    ]
    assert (main.level, of_tasks.level, main.handlers) == before


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeated(clock: Clock) -> RepeatedWarnings:
    return RepeatedWarnings(clock=clock, wall_clock=clock)


def test_the_intervals_double_up_to_the_longest_one(repeated: RepeatedWarnings, clock: Clock) -> None:
    shown = []
    while clock.seconds < 2_000:
        if repeated.again("visit") is not None:
            shown.append(clock.seconds)
        clock.seconds += 0.5
    gaps = [after - before for before, after in pairwise(shown)]
    assert gaps[:4] == [FIRST_SECONDS * 2**k for k in range(4)]
    assert gaps[-2:] == [MOST_SECONDS, MOST_SECONDS]
    assert gaps == sorted(gaps)


def test_keys_are_independent_and_another_cause_is_a_new_warning(repeated: RepeatedWarnings) -> None:
    assert repeated.again("a", kind=OSError) == ""
    assert repeated.again("b", kind=OSError) == ""
    assert repeated.again("a", kind=OSError) is None
    assert repeated.again("a", kind=ValueError) == ""
    assert repeated.over("c") is None


@pytest.mark.parametrize("kinds", [2, 3 * MOST_KINDS])
def test_causes_that_alternate_are_logged_as_seldom_as_one(
    repeated: RepeatedWarnings, clock: Clock, kinds: int
) -> None:
    lines = 0
    for second in range(600):
        lines += repeated.again("visit", kind=second % kinds) is not None
        clock.seconds += 1
    assert lines <= 8 * min(kinds, MOST_KINDS + 1)
    assert len(repeated._warned["visit"]) == min(kinds, MOST_KINDS + 1)
    assert repeated.over("visit") == " (after 600 failures since 1970-01-01 00:00:00 UTC)"


def test_a_cause_that_was_silent_for_long_is_forgotten_while_another_goes_on(
    repeated: RepeatedWarnings, clock: Clock
) -> None:
    repeated.again("visit", kind=OSError)
    while clock.seconds <= FORGOTTEN_SECONDS:
        clock.seconds += MOST_SECONDS / 2
        repeated.again("visit", kind=ValueError)
    assert repeated.again("visit", kind=OSError) == ""
    assert (repeated.over("visit") or "").startswith(" (after 6 failures since 1970-01-01 00:02:30 UTC")


def test_lines_have_the_count_and_the_place_of_the_caller(caplog, repeated, clock):
    log = logging.getLogger("taskplace.repeated")
    repeated.settle(log, "%s works again", "it")
    for _ in range(3):
        repeated.warn(log, "%s fails", "it", kind=ValueError, level=logging.ERROR)
        clock.seconds += FIRST_SECONDS / 2
    repeated.settle(log, "%s works again", "it")
    since = "1970-01-01 00:00:00 UTC"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "it fails"),
        ("ERROR", f"it fails (3 times since {since})"),
        ("WARNING", f"it works again (after 3 failures since {since})"),
    ]
    assert {record.filename for record in caplog.records} == {Path(__file__).name}
