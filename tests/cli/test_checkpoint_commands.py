"""`taskplace inspect`, `status`, `drain` and `can-remove`, on a stream without Spark."""

from __future__ import annotations

import json
import re
import sys

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.cli.status_words import events
from taskplace.model.schema import schema
from taskplace.spark.operator_messages import DriverIdentity, RebalanceStatus, Status
from tests.support.command_line import one_line
from tests.support.operators import attended, run, stream, turn
from tests.support.placed_without_spark import World


@pytest.fixture
def world(tmp_path, monkeypatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def placed(world):
    """A driver that has tasks on two executors."""
    placed = stream(world)
    world.come()
    for batch in (1, 2):
        world.follow(placed)
        run(world, placed, batch)
    turn(placed)
    return placed


def test_inspect(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["inspect", path, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "last batch  2: 8 rows, committed by driver 1, generation 3" in out
    assert out.endswith("result      sound (all bytes were read)\n")
    assert main(["inspect", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    of_task = found["tasks"]["0_0"]
    shown = re.search(r"^0_0 +([\d,]+) +([\d,]+|none) +([\d,]+) +([\d,]+)$", out, re.M)
    assert [shown[k].replace(",", "") for k in (1, 3, 4)] == [
        str(of_task[name]) for name in ("records", "replay", "bytes")
    ]
    assert of_task["bytes"] > 0
    assert (found["schema"], found["sound"], found["last"]["batch"]) == ("taskplace.inspection/1", True, 2)

    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert main(["inspect", path]) == 1
    out = capsys.readouterr().out
    assert "missing; the state of 0_0, 0_1 cannot be made of this checkpoint" in out
    assert "result      DAMAGED" in out


def test_verify(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["verify", path]) == 0
    out = capsys.readouterr().out
    assert "manifests   batches 0 to 2 are needed, and were read" in out
    assert re.search(r"^files       [\d,]+ bytes that manifests name were read", out, re.M)
    assert (
        "placement   2 tasks on 2 executors, checked for the invariants known, once, disjoint and stateful"
        in out
    )
    assert out.endswith("result      valid\n")
    assert main(["verify", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("checkpoint_verification"), cls=jsonschema.Draft202012Validator)
    assert found["valid"]

    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert main(["verify", path]) == 1
    out = capsys.readouterr().out
    assert "missing; the state of 0_0, 0_1 cannot be made of this checkpoint" in out
    assert out.endswith("result      NOT VALID\n")
    assert main(["verify", path, "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("checkpoint_verification"), cls=jsonschema.Draft202012Validator)
    assert found["damaged"][0]["lost"] == ["0_0", "0_1"]


def test_verify_takes_a_directory_for_a_checkpoint(placed, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert "expected a checkpoint of taskplace" in one_line(capsys)
    assert main(["verify", str(placed.checkpoint), "--plan", "plan.json"]) == 2
    assert "--plan: found 'plan.json', expected a problem.json as FILE" in one_line(capsys)


@pytest.mark.parametrize("command", [["inspect"], ["status"], ["drain", "1"], ["can-remove", "1"]])
def test_a_path_without_a_checkpoint_is_bad_input(command, tmp_path, capsys):
    name, *executors = command
    assert main([name, str(tmp_path / "none"), *executors]) == 2
    assert "expected the directory of a checkpoint" in one_line(capsys)


@pytest.mark.parametrize("name", ["inspect", "status", "drain", "can-remove"])
def test_the_help_has_an_example_and_the_exit_codes(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert f"taskplace {name} /data/checkpoint" in out
    assert "Exit codes: 0 " in out


def test_status(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["status", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("running: driver 1 (app-1, process ")
    assert "executor-2      host-2                    1        0        0         0" in out
    assert "membership: executor-2 joined; 1 move, more to come" in out
    assert main(["status", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["status"]["batch"]) == (True, 2)
    placed.close()
    assert main(["status", path]) == 4
    assert capsys.readouterr().out.startswith("no driver runs: driver 1 (app-1, process ")


@pytest.mark.parametrize(("moves", "last"), [(6, "move 5"), (9, "and 3 more")])
def test_status_says_how_many_moves_it_leaves_out(moves, last):
    shown = tuple(f"move {i}" for i in range(6))
    driver = DriverIdentity("h", 7, "app", 0.0)
    change = RebalanceStatus(5.0, 1, 2, "start", moves=moves, shown=shown)
    now = Status("id", "t", 1, driver, written=9.0, number=1, interval=2.0, rebalances=(change,))
    first, *lines = events(now)
    assert f"{moves} moves" in first
    assert [line.strip() for line in lines[:6]] == list(shown)
    assert lines[-1].strip() == last


def test_status_watched(placed, capsys):
    path = str(placed.checkpoint)
    with attended(placed):
        assert (
            main(["status", path, "--watch", "--count", "2", "--interval", "0.05", "--output", "json"]) == 0
        )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert second["status"]["number"] > first["status"]["number"]
    assert main(["status", path, "--watch", "--count", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "generation 3; 2 executors; 2 active, 0 standby, lag 0" in line


def test_status_on_a_terminal(placed, capsys, monkeypatch):
    from rich.console import Console

    from taskplace.cli.status_table import view
    from taskplace.spark.inspection.driver_seen import look

    console = Console(width=100, record=True)
    console.print(view(look(placed.checkpoint)))
    text = console.export_text()
    assert "executor-2" in text
    assert "running: driver 1" in text


def test_a_terminal_gets_no_line_that_it_would_break(placed, capsys, monkeypatch):
    path = str(placed.checkpoint)
    main(["status", path])
    long = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rebalance")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    main(["status", path])
    folded = capsys.readouterr().out
    assert max(map(len, folded.splitlines())) <= 70
    assert any(len(line) > 70 for line in long)
    for line in long:
        assert line in re.sub(r"\n {12}(?=\S)", " ", folded)


def test_drain_and_can_remove(world, placed, capsys):
    path = str(placed.checkpoint)
    with attended(placed):
        assert main(["drain", path, "executor-2"]) == 3
        out = capsys.readouterr().out
        assert "active executor-2 -> executor-1" in out
        assert out.endswith(f"nothing was changed; to do it: taskplace drain {path} executor-2 --yes\n")
        assert not placed.state.draining
        assert main(["can-remove", path, "2", "--output", "json"]) == 3
        assert json.loads(capsys.readouterr().out)["removals"][0]["can_remove"] is False
        assert main(["drain", path, "executor-2", "--yes"]) == 0
        assert "draining: executor-2; it takes effect within a second, or" in capsys.readouterr().out
    for batch in (3, 4):
        world.follow(placed)
        run(world, placed, batch)
    with attended(placed):
        assert main(["can-remove", path, "2"]) == 0
        assert "executor-2: yes" in capsys.readouterr().out
        assert main(["drain", path, "2"]) == 0  # nothing would move
        capsys.readouterr()
        assert main(["drain", path, "2", "--undo", "--yes"]) == 0
        assert "draining: no executor" in capsys.readouterr().out


def test_the_end_of_a_drain_is_shown_first(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["drain", path, "2", "--undo"]) == 0
    assert "none of them drains" in capsys.readouterr().out
    placed.drain("2")
    placed.rebalancer.recent.changes += 1
    placed._runner.operations._last = 0.0
    turn(placed)
    assert main(["drain", path, "2", "--undo"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "executor-2 would no longer drain",
        f"nothing was changed; to do it: taskplace drain {path} 2 --undo --yes",
    ]
    assert placed.state.draining == {"executor-2"}


def test_unknown_executors_and_refused_drains_are_bad_input(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["drain", path, "executor-22"]) == 2
    assert "expected one of executor-1, executor-2; did you mean 'executor-2'?" in one_line(capsys)
    with attended(placed):
        assert main(["drain", path, "1", "2", "--yes"]) == 2
        assert "at least one stays" in one_line(capsys)
        assert main(["can-remove", path, "7"]) == 2
        assert "expected one of ['executor-1', 'executor-2']" in one_line(capsys)
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
