"""`taskplace run`: what it hands to the runtime, and where warnings go; no Spark is started here."""

import logging

import pytest

from taskplace.cli import main


def test_workers_find_what_lies_in_the_current_directory(shop, tmp_path, capsys, monkeypatch):
    import os

    monkeypatch.setenv("PYTHONPATH", "/already/there")
    assert main(["run", shop(), "--check"]) == 0
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/already/there"]


def test_running_hands_everything_to_the_runtime(shop, monkeypatch, tmp_path):
    app = pytest.importorskip("taskplace.spark.app")
    calls = []

    def run(settings, application, reporter):
        calls.append((settings.application.id, type(application).__name__, type(reporter).__name__))
        return 1

    monkeypatch.setattr(app, "run", run)
    assert main(["run", shop(), "--set", "report.progress=plain"]) == 1
    assert calls == [("shop", "Shop", "PlainReporter")]


def test_warnings_stand_where_everything_else_does(shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")

    def run(settings, application, reporter):
        logging.getLogger("taskplace.spark").warning("cannot follow %s", "0_1")
        record = logging.makeLogRecord(
            {"levelno": logging.ERROR, "msg": "while sending", "module": "java_gateway"}
        )
        logging.getLogger().handle(record)
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", run)
    before = list(logging.getLogger().handlers)
    assert main(["run", shop(), "--set", "report.progress=plain"]) == 130
    assert logging.getLogger().handlers == before
    out = capsys.readouterr()
    assert out.out == "preparing the input\ncannot follow 0_1\n"
    assert out.err == "taskplace: interrupted\n"
