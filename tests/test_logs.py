"""Log lines: as JSON and as text, without secrets; and only while asked for."""

import io
import json
import logging
import logging.config
import sys

import pytest

from taskplace.logs import JsonFormatter, TextFormatter, fields, logging_to

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


def test_a_field_does_not_replace_what_every_line_has():
    found = json.loads(
        JsonFormatter().format(record("text", extra=fields("x", level="high", message="other")))
    )
    assert (found["level"], found["message"], found["event"]) == ("WARNING", "text", "x")


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


def test_a_value_that_is_not_json_is_text():
    assert json.loads(JsonFormatter().format(record("x", extra=fields("x", at=object))))["at"].startswith(
        "<class"
    )


def test_the_formatter_can_be_named_in_a_configuration():
    stream = io.StringIO()
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": "taskplace.logs.JsonFormatter"}},
            "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json", "stream": stream}},
            "loggers": {LOG.name: {"level": "INFO", "handlers": ["json"]}},
        }
    )
    try:
        LOG.info("here")
    finally:
        LOG.handlers.clear()
        LOG.setLevel(logging.NOTSET)
    assert json.loads(stream.getvalue())["message"] == "here"


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
