"""`taskplace drain` and `can-remove`: requests to the driver of a stream, without Spark."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
from msgspec.structs import replace

from taskplace.cli import main
from taskplace.errors import CheckpointError
from taskplace.model.schema import schema
from taskplace.spark.operator_messages import STATUS_FILE, Status, read, write
from taskplace.spark.state.copy import Copy
from tests.support.command_line import one_line
from tests.support.operators import attended, run, write_status


def test_drain_and_can_remove(world, placed, capsys):
    path = str(placed.checkpoint)
    with attended(placed):
        assert main(["drain", path, "executor-2"]) == 3
        out = capsys.readouterr().out
        assert re.search(r"^0_\d: moves from executor-2 to executor-1$", out, re.M)
        assert "\n1 change in all\n" in out
        assert out.endswith(f"nothing was changed; to do it: taskplace drain {path} executor-2 --yes\n")
        assert not placed.state.draining
        assert main(["can-remove", path, "2", "--output", "json"]) == 3
        assert json.loads(capsys.readouterr().out)["removals"][0]["can_remove"] is False
        assert main(["drain", path, "executor-2", "--yes"]) == 0
        out = capsys.readouterr().out
        assert "draining: executor-2; it takes effect within a second, or" in out
        said = (
            "executor-2: it still has 1 active task; no task has to catch up elsewhere first; it drains, so "
        )
        assert said in out
    for batch in (3, 4):
        world.follow(placed)
        run(world, placed, batch)
    with attended(placed):
        assert main(["can-remove", path, "2"]) == 0
        assert "executor-2: yes" in capsys.readouterr().out
        assert main(["drain", path, "2"]) == 0  # nothing would move
        capsys.readouterr()
        assert main(["drain", path, "2", "--undo", "--yes"]) == 0
        assert capsys.readouterr().out == "executor-2 no longer drains, from the next rebalance on\n"


def test_a_stuck_copy_that_a_drain_waits_for_is_named_and_counted(world, placed, capsys, monkeypatch):
    path = str(placed.checkpoint)

    def fails(*_, **__):
        raise CheckpointError("changelog/1.segment: damaged. Restore it")

    run(world, placed, 3)  # the copy that executor-1 has left of 0_1 lacks records
    run(world, placed, 4)
    with monkeypatch.context() as patch:
        patch.setattr(Copy, "follow", fails)
        placed.drain("2")
        for batch in (5, 6):
            run(world, placed, batch)
            world.follow(placed)
        write_status(placed)
    stuck = (
        "but the copy of 0_1 on executor-1 is stuck: executor-1 cannot follow: CheckpointError: changelog/1.segment: "
        f"damaged; `taskplace inspect {path} --verify` names damaged files and their tasks; restore them from a "
        "backup, or "
    )
    with attended(placed):
        assert main(["can-remove", path, "2"]) == 3
        said = capsys.readouterr().out
        assert said.startswith("executor-2: no: 1 task must catch up elsewhere first: 0_1 (executor-1 ")
        assert f"; it drains, {stuck}" in said
        assert main(["can-remove", path, "2", "--output", "json"]) == 3
        found = json.loads(capsys.readouterr().out)
        jsonschema.validate(found, schema("answer"), cls=jsonschema.Draft202012Validator)
        assert [(one["task"], one["at"]) for one in found["removals"][0]["stuck"]] == [("0_1", "executor-1")]
        assert main(["drain", path, "2", "--yes"]) == 0
        assert f"; it drains, {stuck}" in capsys.readouterr().out
    assert main(["explain", path, "--can-remove", "2"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == said.rstrip("\n")
    assert placed.metrics()["stuck-copies"] == 1

    world.follow(placed)
    write_status(placed)
    assert placed.metrics()["stuck-copies"] == 0
    assert placed.removal("2").stuck == ()


def test_the_end_of_a_drain_is_shown_first(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["drain", path, "2", "--undo"]) == 0
    assert "none of them drains" in capsys.readouterr().out
    placed.drain("2")
    write_status(placed)
    assert main(["drain", path, "2", "--undo"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "executor-2 would no longer drain",
        f"nothing was changed; to do it: taskplace drain {path} 2 --undo --yes",
    ]
    assert placed.state.draining == {"executor-2"}


def test_unknown_executors_and_refused_drains_are_bad_input(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["drain", path, "executor-22"]) == 2
    wanted = "taskplace: EXECUTOR: found 'executor-22', expected one of 2 executors: executor-1, executor-2\n"
    assert one_line(capsys) == wanted
    with attended(placed):
        assert main(["drain", path, "1", "2", "--yes"]) == 2
        assert "at least one stays" in one_line(capsys)
        assert main(["can-remove", path, "7"]) == 2
        line = one_line(capsys)
        assert line.count("found") == 1 and "did you mean" not in line
        assert line == "taskplace: EXECUTOR: found '7', expected one of 2 executors: executor-1, executor-2\n"
    assert not placed.state.draining


@pytest.mark.parametrize("command", ["drain", "can-remove"])
def test_no_answer_and_no_driver_are_answers(placed, command, capsys):
    arguments = [command, str(placed.checkpoint), "2"]
    assert main([*arguments, "--timeout", "0.01"]) == 5
    assert capsys.readouterr().out.startswith("no answer: ")
    assert list((placed.checkpoint / "requests").iterdir()) == []
    placed.close()
    assert main(arguments) == 4
    assert capsys.readouterr().out.startswith("no driver runs: ")
    assert main([*arguments, "--output", "json"]) == 4
    assert json.loads(capsys.readouterr().out)["outcome"] == "no driver runs"


def test_a_driver_that_has_just_started_gives_no_answer_yet(placed, capsys):
    """Its first batch has begun, and it has not seen an executor."""
    file = placed.checkpoint / STATUS_FILE
    write(file, replace(read(file, Status), executors={}, rebalances=(), homeless=(), generation=0))
    for command in (["can-remove"], ["drain"], ["drain", "--yes"]):
        assert main([command[0], str(placed.checkpoint), "executor-1", *command[1:]]) == 5
        said = " ".join(capsys.readouterr().out.split())
        assert "it has just started, and no executor has joined yet: ask again" in said
        assert ("nothing was changed" in said) == (command[0] == "drain")
