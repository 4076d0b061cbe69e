"""What `taskplace run` makes of the section `report` besides lines on a terminal; no Spark is started here."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from taskplace.cli import main
from taskplace.errors import TaskplaceError
from taskplace.spec.application import Settings
from tests.support.run_events import SUMMARY, tell_events


@pytest.fixture
def app():
    return pytest.importorskip("taskplace.spark.app")


@pytest.fixture
def given(app, monkeypatch) -> list[Settings]:
    """The settings that a run got."""
    settings: list[Settings] = []
    monkeypatch.setattr(app, "run", lambda given, application, reporter: settings.append(given) or 0)
    return settings


@pytest.mark.parametrize(
    ("address", "port", "host"),
    [
        ("0", 0, "127.0.0.1"),
        ("localhost:0", 0, "localhost"),
        ("[::1]:0", 0, "::1"),
        ("0.0.0.0:0", 0, "0.0.0.0"),
    ],
)
def test_an_address_of_the_live_page(address, port, host, shop, given):
    assert main(["run", shop(), "--ui", address]) == 0
    assert (given[0].report.ui_port, given[0].report.ui_host) == (port, host)


def test_a_taken_port_starts_nothing_and_is_found_by_a_check(shop, given, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more in ([], ["--check"]):
            assert main(["run", shop(), "--ui", str(port), *more]) == 2
            assert "Address already in use" in capsys.readouterr().err
    assert given == []


def test_lines_that_cannot_be_opened_after_the_check_start_nothing(shop, given, capsys, monkeypatch):
    monkeypatch.setattr("taskplace.cli.run.check_report", lambda settings: None)
    assert main(["run", shop(), "--set", "report.events=shop.yaml/lines"]) == 2
    assert "report.events: found 'shop.yaml/lines (" in capsys.readouterr().err
    assert given == []


@pytest.mark.parametrize("error", [None, TaskplaceError("batch 4 failed: disk full"), KeyboardInterrupt()])
def test_the_lines_of_a_run_are_written_however_it_ends(error, shop, app, monkeypatch, capsys):
    def run(settings, application, reporter):
        tell_events(reporter)
        if error is not None:
            raise error
        reporter.summary(SUMMARY)
        return 0

    monkeypatch.setattr(app, "run", run)
    code = main(["run", shop(), "--set", "report.events=lines/run.jsonl", "--set", "report.progress=none"])
    lines = [json.loads(line) for line in Path("lines/run.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] not in ("work", "warm-up")] == [
        "start", "rebalance", "batch", "loss", "rebalance", "batch", "batch", "rebalance", "batch", "finish",
    ]  # fmt: skip
    assert lines[-1]["exit_code"] == code
    capsys.readouterr()
    assert main(["report", "lines/run.jsonl"]) == 0
    assert capsys.readouterr().out == "taskplace-run.html\n"
    assert '"kind":"run","title":"shop"' in Path("taskplace-run.html").read_text()
