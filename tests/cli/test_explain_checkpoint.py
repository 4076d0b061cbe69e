"""`taskplace explain CHECKPOINT`: a running stream, one whose driver has ended, and one that never wrote a status."""

from __future__ import annotations

import json

import pytest

from taskplace.cli import main
from taskplace.errors import TaskplaceError
from taskplace.spark.codec import sealed
from taskplace.spark.operator_messages import STATUS_FILE, Status, read, write
from taskplace.spark.state.copy import Copy
from tests.support.command_line import one_line
from tests.support.operators import run, stream, turn, write_status


@pytest.fixture
def placed(world):
    """A driver with a task that is about to move to executor-2, which has read nothing yet."""
    placed = stream(world)
    world.come()
    world.follow(placed)
    run(world, placed, 1)
    turn(placed)
    return placed


def moving(placed) -> str:
    (task,) = placed.state.roles("executor-2").warmup
    return str(task)


def test_a_task_of_a_running_stream_has_the_text_that_python_has(placed, capsys):
    path, task = str(placed.checkpoint), moving(placed)
    assert main(["explain", path, "--task", task]) == 3
    headline, _, text = capsys.readouterr().out.partition("\n\n")
    assert headline.startswith("running: driver 1 (app-1, process ")
    assert text == f"{placed.explain(task)}\n"
    paragraph = " ".join(text.partition("\n  task")[0].split())
    assert paragraph.startswith(
        f"{task} is active on executor-1, with a warm-up on executor-2. It is to move to executor-2 so that "
        "executor-1 has 1 of the 2 tasks (it has 2 now), but executor-2 still lacks "
    )
    assert "It moves once executor-2 lacks no record; the time is not known: " in paragraph
    assert main(["explain", path, "--task", task, "--output", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["driver"]["runs"]) == ("taskplace.explanation/1", True)
    (one,) = found["tasks"]
    assert (one["task"], one["text"]) == (task, paragraph)
    assert (one["progress"]["state"], one["progress"]["seconds"]) == ("catching up", None)


def test_without_a_task_it_says_what_is_on_its_way(world, placed, capsys):
    path, task = str(placed.checkpoint), moving(placed)
    assert main(["explain", path]) == 3
    out = capsys.readouterr().out
    assert (
        "\n2 tasks on 2 instances: 0 changes now, more to follow; in all 1 move, the fewest possible" in out
    )
    assert f"\n\n{task} is active on executor-1, with a warm-up on executor-2." in out
    assert out.endswith("1 other task is where it belongs; --task explains any task\n")
    world.follow(placed)
    run(world, placed, 2)
    write_status(placed)
    assert main(["explain", path]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2] == (
        "Nothing to do: every task is where it belongs (2 tasks on 2 instances)\n\n--task explains any task\n"
    )


@pytest.mark.parametrize("runs", [True, False])
def test_a_task_at_rest_is_not_stuck_because_no_driver_runs(world, capsys, runs):
    """A standby that lacks records is where it belongs."""
    world.come()
    placed = stream(world, config={"num.standby.replicas": 1})
    run(world, placed, 1)
    write_status(placed)
    if not runs:
        placed.close()
    assert main(["explain", str(placed.checkpoint)]) == (0 if runs else 4)
    _, first, last = capsys.readouterr().out.split("\n\n")
    every = "Nothing to do: every" if runs else "Every"
    assert first == f"{every} task is where it belongs (2 tasks on 2 instances)"
    assert last == "--task explains any task\n"


def test_a_stuck_warm_up_is_found_from_the_status(world, placed, capsys, monkeypatch):
    path, task = str(placed.checkpoint), moving(placed)

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Copy, "follow", fails)
    world.follow(placed)
    write_status(placed)
    assert main(["status", path]) == 0
    status = capsys.readouterr().out
    (line,) = [line for line in status.splitlines() if line.startswith("stuck")]
    assert line.startswith(f"stuck       {task} on executor-2: executor-2 cannot follow: DiskFull: ")
    assert line.endswith("; make room on the disk of executor-2 (host-2); the copy then goes on by itself")
    assert f"`taskplace explain {path} --task {task}` says what follows from it" in status
    assert main(["explain", path]) == 3
    assert " records. executor-2 cannot follow: DiskFull: " in " ".join(capsys.readouterr().out.split())
    placed.close()
    assert main(["status", path]) == 4
    ended = line.replace("; the copy then goes on by itself", ", and start the stream again")
    assert ended in capsys.readouterr().out.splitlines()
    assert main(["explain", path, "--task", task]) == 4
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "No driver runs, so nothing catches up; its last status says: executor-2 cannot follow: DiskFull"
        in text
    )
    assert "Make room on the disk of executor-2 (host-2), and start the stream again." in text


def test_without_a_driver_the_last_status_is_explained_with_its_time(placed, capsys):
    path, task = str(placed.checkpoint), moving(placed)
    placed.close()
    assert main(["explain", path, "--task", task]) == 4
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("no driver runs: driver 1 (app-1, process ")
    assert (
        "What follows is its last status, of 2" in text
        and "; times are relative to it. This command checks no" in text
    )
    assert f"file of the checkpoint; `taskplace inspect {path} --verify` does. {task} is active" in text
    assert (
        "No driver runs, so nothing catches up. It moves once executor-2 lacks no record. Start the" in text
    )
    assert main(["explain", path, "--task", task, "--output", "json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["driver"]["runs"] is False
    assert found["driver"]["age_seconds"] >= 0
    assert [one["task"] for one in found["tasks"]] == [task]


def test_without_a_status_no_more_is_known_than_what_is_committed(placed, capsys):
    path = str(placed.checkpoint)
    placed.close()
    (placed.checkpoint / STATUS_FILE).unlink()
    assert main(["explain", path, "--task", "0_0"]) == 4
    out = capsys.readouterr().out
    assert out.startswith("no driver runs: ") and "`taskplace inspect` shows what is committed" in out
    assert (
        f"\nThis command checks no file of the checkpoint; `taskplace inspect {path} --verify` does.\n" in out
    )
    assert main(["explain", path, "--output", "json"]) == 4
    assert json.loads(capsys.readouterr().out)["outcome"] == "no driver runs"
    assert main(["explain", path, "--task", "9_9"]) == 2
    assert "taskplace: --task: found '9_9', expected one of 2 tasks: 0_0, 0_1" in one_line(capsys)


@pytest.fixture
def empty(world):
    """A driver that has lost its last executor."""
    placed = stream(world)
    world.follow(placed)
    for id in list(world.there):
        world.lose(id)
    with placed.rebalancer.lock:
        placed.state.keep(())
    write(placed.checkpoint / STATUS_FILE, placed._runner.operations.status())
    return placed


def test_without_an_executor_the_commands_say_so(empty, tmp_path, capsys):
    path = str(empty.checkpoint)
    assert main(["explain", path, "--task", "0_0"]) == 3
    assert "no executor is there, so 2 tasks cannot run: add executors" in capsys.readouterr().out
    assert main(["explain", path, "--can-remove", "executor-1"]) == 2
    assert "no executor is there" in capsys.readouterr().err
    with pytest.raises(TaskplaceError, match="no executor is there, so no task can run"):
        empty.explain("0_0")
    assert main(["drain", path, "executor-1"]) == 2
    assert "expected an executor of the stream, which has none now" in capsys.readouterr().err
    assert main(["report", path, "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_what_a_newer_driver_says_more_is_left_out(empty):
    path = empty.checkpoint / STATUS_FILE
    body = json.loads(path.read_bytes())["body"]
    body["tomorrow"] = body["driver"]["tomorrow"] = 1
    before = read(path, Status)
    path.write_bytes(sealed(body))
    assert read(path, Status) == before


def test_whether_an_executor_can_go_is_the_drivers_own_answer(placed, capsys):
    path = str(placed.checkpoint)
    for name in ("1", "executor-2"):
        code = main(["explain", path, "--can-remove", name])
        line = capsys.readouterr().out.splitlines()[-1]
        removal = placed.removal(name)
        assert (code, line) == (0 if removal.can_remove else 3, f"{removal.instance}: {removal.text}")
    assert main(["explain", path, "--can-remove", "7"]) == 2
    wanted = "expected one of 2 executors: executor-1, executor-2\n"
    assert one_line(capsys) == f"taskplace: --can-remove: found '7', {wanted}"


def test_only_stuck_copies_need_a_plan(placed, capsys, monkeypatch):
    monkeypatch.setattr("taskplace.planner.plan", None)
    assert main(["explain", str(placed.checkpoint), "--can-remove", "executor-2"]) == 3
    assert capsys.readouterr().out.splitlines()[-1].startswith("executor-2: no: ")


def test_without_a_driver_nothing_can_be_drained(placed, capsys):
    path = str(placed.checkpoint)
    placed.close()
    assert main(["explain", path, "--can-remove", "executor-1"]) == 4
    answer, last = capsys.readouterr().out.splitlines()[-2:]
    assert answer.startswith("executor-1: no: 2 tasks must catch up elsewhere first: ")
    assert answer.endswith("; drain it first")
    assert last == "No driver runs, so nothing can be drained: start the stream first."
