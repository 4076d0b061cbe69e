"""`taskplace run`: what it hands to the runtime, and where warnings go; no Spark is started here."""

import json
import logging
import os
import signal
import threading

import pytest

from taskplace.cli import main
from taskplace.cli.run import interrupted_by_sigterm
from taskplace.errors import InputError, TaskplaceError


def test_workers_find_what_lies_in_the_current_directory(shop, tmp_path, capsys, monkeypatch):
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


def logged(app, monkeypatch, more=()):
    def run(settings, application, reporter):
        logging.getLogger("taskplace").info("rebalance at batch 0")
        logging.getLogger("taskplace.tasks").debug("0_1 moves")
        logging.getLogger("taskplace.spark").warning("with token=hunter2")
        return 0

    monkeypatch.setattr(app, "run", run)
    sets = [part for key in ("report.progress=plain", *more) for part in ("--set", key)]
    assert main(["run", "shop.yaml", *sets]) == 0


def test_log_lines_go_to_standard_error_if_asked_for(shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")
    shop()
    logged(app, monkeypatch)
    assert capsys.readouterr().err == ""
    logged(app, monkeypatch, ["report.log=json"])
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("taskplace", "rebalance at batch 0"),
        ("taskplace.spark", "with token=(hidden)"),
    ]
    logged(app, monkeypatch, ["report.log=text", "report.log.tasks=true"])
    assert "DEBUG taskplace.tasks: 0_1 moves\n" in capsys.readouterr().err
    logged(app, monkeypatch)
    assert capsys.readouterr().err == ""


def json_lines(capsys):
    out = capsys.readouterr()
    return [json.loads(line) for line in out.out.splitlines()], out.err


@pytest.mark.parametrize("how", [["--output", "json"], ["--set", "report.progress=json"]])
def test_a_run_for_programs_prints_lines_of_json_and_nothing_else(how, shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")

    def run(settings, application, reporter):
        print("said by the application")
        reporter.note("starting Spark")
        logging.getLogger("taskplace.spark").warning("cannot follow")
        return 0

    monkeypatch.setattr(app, "run", run)
    assert main(["run", shop(), *how]) == 0
    lines, err = json_lines(capsys)
    assert [line["event"] for line in lines] == ["start", "work", "work", "note", "note", "finish"]
    assert (lines[0]["schema"], lines[0]["application"]) == ("taskplace.run/1", "shop")
    assert [(line["name"], line["ended"]) for line in lines[1:3]] == [
        ("preparing the input", False),
        ("preparing the input", True),
    ]
    assert [line["text"] for line in lines[3:5]] == ["starting Spark", "cannot follow"]
    assert lines[-1]["exit_code"] == 0
    assert err == "said by the application\n"


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (TaskplaceError("batch 3 failed: token=x"), 1, "batch 3 failed: token=(hidden)"),
        (
            InputError("chaos.kill", found="7", expected="an executor"),
            2,
            "chaos.kill: found '7', expected an executor",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_the_last_line_says_how_a_run_ended(error, code, says, shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")

    def run(settings, application, reporter):
        raise error

    monkeypatch.setattr(app, "run", run)
    assert main(["run", shop(), "--output", "json"]) == code
    lines, err = json_lines(capsys)
    assert lines[-1]["event"] == "finish"
    assert (lines[-1]["exit_code"], lines[-1]["error"]) == (code, says)
    assert err.startswith("taskplace: ") and err.count("\n") == 1


def test_text_in_place_of_the_json_of_the_file(shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")
    monkeypatch.setattr(app, "run", lambda settings, application, reporter: 0)
    assert main(["run", shop(more="report: {progress: json}\n"), "--output", "text"]) == 0
    assert capsys.readouterr().out == "preparing the input\n"


def test_a_check_for_programs(shop, capsys):
    assert main(["run", shop(), "--check", "--output", "json"]) == 0
    (checked,), _ = json_lines(capsys)
    assert checked == {
        "schema": "taskplace.check/1", "file": "shop.yaml", "valid": True, "topology": "shop", "subtopologies": 1,
        "tasks": 4,
    }  # fmt: skip
    assert main(["run", shop("shop:Waiting"), "--check", "--output", "json"]) == 2
    (checked,), err = json_lines(capsys)
    assert (checked["schema"], checked["valid"]) == ("taskplace.check/1", False)
    assert err == f"taskplace: {checked['error']}\n"
    assert "not ready" in checked["error"]


# -- SIGTERM


def test_the_first_one_interrupts_and_later_ones_do_not_disturb_the_end():
    before, done = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("cleaned up")
    assert done == ["cleaned up"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_leaves_signals_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def inside():
        with interrupted_by_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]
