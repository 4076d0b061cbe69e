"""`taskplace report`: from each kind of file to its page, and `--html` of the engine's commands."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from taskplace.cli import main
from tests.support.report_problems import EVENTS, cluster


@pytest.fixture
def problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(cluster(tasks=12, instances=3)))
    return path


@pytest.fixture
def plan(problem, capsys):
    main(["plan", str(problem), "--output", "json"])
    Path("plan.json").write_text(capsys.readouterr().out)
    return "plan.json"


def document(page: str | Path) -> dict:
    """The data of a page."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', Path(page).read_text())
    return json.loads(found[1])


def test_a_problem_is_planned_and_the_path_is_printed(problem, capsys):
    assert main(["report", str(problem)]) == 0
    assert capsys.readouterr().out == "taskplace-problem.html\n"
    made = document("taskplace-problem.html")
    assert (made["schema"], made["kind"], made["title"]) == ("taskplace.report/1", "plan", "problem.json")
    assert [step["label"] for step in made["steps"]] == ["before", "step", "target"]
    assert len(made["reasons"]) == 12
    assert main(["report", str(problem), "--output", "json"]) == 0
    page = {"page": "taskplace-problem.html", "kind": "plan", "title": "problem.json"}
    assert json.loads(capsys.readouterr().out) == {"schema": "taskplace.page/1", **page}


def test_a_plan_with_and_without_its_problem(problem, plan, capsys):
    assert main(["report", plan, "--out", "pages/plan.html"]) == 0
    assert capsys.readouterr().out == "pages/plan.html\n"
    assert document("pages/plan.html")["reasons"] == []
    assert main(["report", plan, "--problem", str(problem), "--out", "pages/whole.html"]) == 0
    assert len(document("pages/whole.html")["reasons"]) == 12


def test_a_simulation_from_standard_input_to_standard_output(problem, capsys, monkeypatch):
    Path("events.json").write_text(json.dumps(EVENTS))
    main(["simulate", str(problem), "--events", "events.json", "--output", "json"])
    monkeypatch.setattr("sys.stdin", io.StringIO(capsys.readouterr().out))
    assert main(["report", "-", "--out", "-"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>") and '"kind":"simulation"' in page


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_plan_and_simulate_write_their_page(problem, capsys, command):
    main([command, str(problem), "--html", "page.html", "--output", "json"])
    out = capsys.readouterr()
    assert json.loads(out.out)["schema"] and out.err == "page: page.html\n"
    assert document("page.html")["kind"] == {"plan": "plan", "simulate": "simulation"}[command]
    main([command, str(problem), "--html", "-"])
    out = capsys.readouterr()
    assert out.out.startswith("<!doctype html>") and out.out.rstrip().endswith("</html>") and out.err == ""
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected"),
        ('{"schema": "taskplace.subscriptions/1"}', "`taskplace partitions wrong.json` takes it"),
        ('{"tasks": [], "instances": [], "x": 1}', "expected one of schema, config"),
        ("{", "wrong.json:1:2: found 'Expecting property name"),
    ],
)
def test_a_wrong_file_is_one_line_and_leaves_nothing(problem, capsys, text, said):
    Path("wrong.json").write_text(text)
    assert main(["report", "wrong.json"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not Path("taskplace-wrong.html").exists()
