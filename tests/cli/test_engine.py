"""The engine's commands: exit codes, one-line errors, JSON in and out; no Spark is started here."""

import json
import subprocess
import sys
from pathlib import Path

import taskplace
from taskplace.cli import main
from tests.support.command_line import STABLE


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
