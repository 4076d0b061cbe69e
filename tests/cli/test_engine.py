"""The engine's commands: exit codes, one-line errors, JSON in and out; no Spark is started here."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import taskplace
from taskplace.cli import main
from tests.support.command_line import STABLE, UNBALANCED, one_line

BAD = {"tasks": [{"id": "0-3"}], "instances": []}
COMMANDS = ["plan", "explain", "verify"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("problem", "code"), [(STABLE, 0), (UNBALANCED, 3)])
def test_the_exit_code_says_whether_anything_has_to_move(command, problem, code, write, capsys):
    assert main([command, write(problem)]) == code
    out = capsys.readouterr()
    assert out.out.strip()
    assert out.err == ""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("document", "says"),
    [
        (BAD, "tasks[0].id: found '0-3', expected a task id like '0_3'"),
        (
            "{",
            "problem.json:1:2: found 'Expecting property name enclosed in double quotes'",
        ),
        ("[]", "problem"),
        (
            {"tasks": [], "instances": [], "config": {"max.warmup.replica": 1}},
            "did you mean 'max.warmup.replicas'?",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(command, document, says, write, capsys):
    assert main([command, write(document)]) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "none.json")]) == 2
    assert "there is no such file" in one_line(capsys)


def test_the_json_of_a_plan_is_the_contract(write, capsys):
    assert main(["plan", "--output", "json", write(UNBALANCED)]) == 3
    out = capsys.readouterr().out
    assert json.loads(out)["schema"] == "taskplace.plan/1"
    assert out == taskplace.plan(UNBALANCED).to_json()


def test_the_slots_of_an_instance_are_shown(write, capsys):
    tasks = [{"id": f"0_{p}"} for p in range(3)]
    assert main(["plan", write({"tasks": tasks, "instances": [{"id": "a", "capacity": 2}]})]) == 3
    assert capsys.readouterr().out.startswith("a  3 active, 0 standby, 0 warm-up; actives per slot: 2 1\n")


def test_explain_has_a_reason_for_each_task_or_for_one(write, capsys):
    problem = write(UNBALANCED)
    assert main(["explain", problem]) == 3
    whole = capsys.readouterr().out
    assert [line.partition(" is")[0] for line in whole.splitlines() if line.startswith("0_")] == [
        "0_0",
        "0_1",
    ]
    assert main(["explain", problem, "--task", "0_1"]) == 3
    one = capsys.readouterr().out
    assert one.startswith("0_1 is active on a, and b begins a warm-up. It is to move to b so that ")
    assert "It moves once b lacks at most 10,000 records;" in " ".join(one.split())
    facts = [line for line in one.splitlines() if line.startswith("  ")]
    assert all(line in whole for line in facts)
    assert main(["explain", problem, "--output", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [(t["task"], t["role"], t["instance"]) for t in found["tasks"]] == [
        ("0_0", "active", "a"),
        ("0_1", "active", "a"),
    ]
    assert found["tasks"][1]["text"] in " ".join(whole.split())
    assert main(["explain", problem, "--output", "json", "--task", "0_1", "--task", "0_0"]) == 3
    named = json.loads(capsys.readouterr().out)["tasks"]
    assert [t["task"] for t in named] == ["0_1", "0_0"]
    assert named[0]["text"] in " ".join(one.split())
    assert (named[0]["progress"]["state"], named[0]["progress"]["seconds"]) == ("catching up", None)
    assert [(r["role"], r["instance"]) for r in found["tasks"][1]["followers"]] == [("warmup", "b")]
    assert found["tasks"][1]["refused"] == [
        {"instance": "b", "why": "it lacks 50,000 records, and a is caught up"}
    ]
    assert [m["role"] for m in found["moves"]] == ["warmup"]
    assert found["optimality"] == {"moves": 1, "lower_bound": 1, "forced_promotions": 0}
    assert main(["explain", problem, "--task", "9_9"]) == 2
    assert "task: found '9_9'" in one_line(capsys)


@pytest.mark.parametrize(
    ("problem", "code", "says"),
    [
        (
            STABLE,
            3,
            "no: it still has 1 active task; no task has to catch up elsewhere first; drain it first",
        ),
        (
            {**STABLE, "tasks": []},
            0,
            "yes: it has no task, and no copy that the others lack",
        ),
        (
            UNBALANCED,
            3,
            "no: 2 tasks must catch up elsewhere first: 0_0 (no other copy) and 0_1 (no other copy); drain it first",
        ),
    ],
)
def test_whether_an_instance_can_be_removed(problem, code, says, write, capsys):
    file = write(problem)
    assert main(["explain", file, "--can-remove", "a"]) == code
    assert capsys.readouterr().out == says + "\n"
    assert main(["explain", file, "--can-remove", "a", "--output", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["can_remove"], found["text"]) == (code == 0, says)
    assert [w["task"] for w in found["waits"]] == (["0_0", "0_1"] if "must catch up" in says else [])
    assert main(["explain", file, "--can-remove", "c"]) == 2
    assert "taskplace: --can-remove: found 'c', expected one of 2 instances: a, b" in one_line(capsys)
    assert main(["explain", file, "--can-remove", "a", "--task", "0_0"]) == 2
    assert "--task" in one_line(capsys)


def test_a_plan_that_lists_no_moves_is_judged_by_its_assignment(write, capsys):
    problem = write({**STABLE, "tasks": [{"id": t, "end_offset": 9} for t in ("0_0", "0_1")]})
    plan = taskplace.plan(json.loads(Path(problem).read_text())).to_dict()
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 0
    assert capsys.readouterr().out == "valid; stable: nothing has to move\n"
    bare = {"assignment": {"a": {"active": ["0_1"]}, "b": {"active": ["0_0"]}}}
    held = {"id": "a", "active": ["0_0"], "lags": {"0_0": 0, "0_1": 0}}
    both = {"id": "b", "active": ["0_1"], "lags": {"0_0": 0, "0_1": 0}}
    problem = write(
        {"tasks": [{"id": t, "end_offset": 9} for t in ("0_0", "0_1")], "instances": [held, both]}
    )
    assert main(["verify", problem, "--plan", write(bare, "plan.json")]) == 3
    assert capsys.readouterr().out == "valid; 4 roles change now, and nothing after that\n"
    assert (
        main(["verify", problem, "--plan", write({**bare, "target": bare["assignment"]}, "plan.json")]) == 1
    )
    assert "violation: minimal: 2 moves, although 0 are enough" in capsys.readouterr().out


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(STABLE)))
    assert main(["plan", "-"]) == 0
    assert "stable" in capsys.readouterr().out


def test_verify_takes_a_plan_from_elsewhere(write, capsys):
    problem, plan = write(UNBALANCED), taskplace.plan(UNBALANCED).to_dict()
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 3
    capsys.readouterr()
    plan["assignment"]["b"]["active"] = plan["assignment"]["a"]["active"]
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 1
    assert "violation: once: " in capsys.readouterr().out
    assert main(["verify", problem, "--plan", write(plan, "plan.json"), "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["valid"]
    assert found["violations"][0]["invariant"] == "once"
    assert main(["verify", problem, "--plan", write({"assignment": 3}, "plan.json")]) == 2


def test_planning_does_not_load_spark(write):
    code = (
        "import sys; from taskplace.cli import main; main(['plan', sys.argv[1]]);"
        "print([m for m in ('pyspark', 'pyarrow', 'yaml', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, write(STABLE)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_left_after_a_plan_is_said_in_its_last_line(write, capsys):
    """One change, two changes, and changes that need further plans."""
    for tasks, line in (
        (1, "1 change now; then nothing is left to move"),
        (2, "2 changes now; then nothing is left to move"),
    ):
        new = {"tasks": [{"id": f"0_{p}", "end_offset": 9} for p in range(tasks)], "instances": [{"id": "a"}]}
        assert main(["plan", write(new)]) == 3
        assert capsys.readouterr().out.splitlines()[-2:] == [f"  0_{tasks - 1}: starts on a", line]
    assert main(["plan", write(UNBALANCED)]) == 3
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "1 change now, more to follow; in all 1 move, the fewest possible"
    )
