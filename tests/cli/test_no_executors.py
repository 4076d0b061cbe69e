"""After the last executor is lost, the commands say so, and pages are still written."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from taskplace.cli import main
from taskplace.errors import TaskplaceError
from taskplace.spark.operator_messages import STATUS_FILE, Status, read, write
from tests.support.operators import stream


@pytest.fixture
def placed(world):
    placed = stream(world)
    world.follow(placed)
    for id in list(world.there):
        world.lose(id)
    with placed.rebalancer.lock:
        placed.state.keep(())
    write(placed.checkpoint / STATUS_FILE, placed._runner.operations.status())
    return placed


def test_explain_says_that_there_is_no_executor(placed, capsys):
    path = str(placed.checkpoint)
    assert read(placed.checkpoint / STATUS_FILE, Status).executors == {}
    assert main(["explain", path, "--task", "0_0"]) == 3
    out = capsys.readouterr().out
    assert "no executor is there, so " in out and "add executors" in out
    assert "0_0 was active on executor-1 at the commit of batch " in out
    assert main(["explain", path, "--output", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["schema"] == "taskplace.last-commit/1"
    assert main(["explain", path, "--can-remove", "executor-1"]) == 2
    assert "no executor is there" in capsys.readouterr().err
    with pytest.raises(TaskplaceError, match="no executor is there, so no task can run"):
        placed.explain("0_0")


def test_a_drain_says_that_the_stream_has_no_executor(placed, capsys):
    assert main(["drain", str(placed.checkpoint), "executor-1"]) == 2
    assert "expected an executor of the stream, which has none now" in capsys.readouterr().err


def test_the_page_is_written_without_reasons(placed, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", str(placed.checkpoint), "--out", str(page)]) == 0
    assert page.stat().st_size > 1000


def test_what_a_newer_driver_says_more_is_left_out(placed):
    path = placed.checkpoint / STATUS_FILE
    body = json.loads(path.read_bytes())["body"]
    body["tomorrow"] = body["driver"]["tomorrow"] = 1
    before = read(path, Status)
    path.write_bytes(_sealed(body))
    assert read(path, Status) == before
    write(path, before)


def _sealed(body: object) -> bytes:
    from taskplace.spark.codec import sealed

    return sealed(body)


def test_a_driver_that_has_just_started_gives_no_answer_yet(placed, capsys):
    """Its first batch has begun, and it has not seen an executor."""
    file = placed.checkpoint / STATUS_FILE
    write(file, replace(read(file, Status), executors={}, rebalances=(), homeless=(), generation=0))
    for command in (["can-remove"], ["drain"], ["drain", "--yes"]):
        assert main([command[0], str(placed.checkpoint), "executor-1", *command[1:]]) == 5
        said = " ".join(capsys.readouterr().out.split())
        assert "it has just started, and no executor has joined yet: ask again" in said
        assert ("nothing was changed" in said) == (command[0] == "drain")
