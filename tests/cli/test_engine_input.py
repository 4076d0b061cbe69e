"""Whatever JSON the engine's commands get, they answer it, or say in one line what is wrong: never a traceback."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import taskplace
from taskplace.cli import main

PROBLEM: dict[str, Any] = {
    "schema": "taskplace.problem/1",
    "config": {"num.standby.replicas": 1, "rack.aware.assignment.tags": ["zone"], "acceptable.recovery.lag": 10},
    "tasks": [
        {"id": "0_0", "end_offset": 50, "weight": 2.0},
        {"id": "0_1", "end_offset": None, "logged": True, "racks": [["a"], ["b"]]},
        {"id": "1_0", "stateful": False},
    ],
    "instances": [
        {"id": "a", "capacity": 2, "tags": {"zone": "x", "rack": "a"}, "active": ["0_0", "1_0"],
         "lags": {"0_0": 0}, "restore_rate": 5.0},
        {"id": "b", "standby": ["0_0"], "warmup": ["0_1"], "lags": {"0_0": 20, "0_1": 3}, "parked": ["1_0"],
         "draining": False, "tags": {"rack": "b"}},
    ],
}  # fmt: skip
EVENTS: list[Any] = [
    [{"kind": "add", "name": "c", "capacity": 2, "tags": {"zone": "y"}, "copies": {"0_0": 5}}],
    [{"kind": "produce", "records": 100}, {"kind": "lag", "name": "a", "task": "0_0", "records": 9}],
    [{"kind": "stop", "name": "a"}, {"kind": "grow", "tasks": [{"id": "2_0", "end_offset": 7}]}],
    [{"kind": "start", "name": "a"}, {"kind": "stick", "name": "b", "task": "0_1"}],
    [{"kind": "drain", "name": "b"}, {"kind": "shrink", "tasks": ["2_0"]}, {"kind": "kill", "name": "c"}],
]
PLAN = taskplace.plan(PROBLEM).to_dict()
TRANSCRIPT = dict(taskplace.simulate(PROBLEM, EVENTS, restore_rate=1.0, limit=4).transcript)

JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 1e300, 5e-324, -0.0, 1e19])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(
        ["\ud800", "a", "b", "0_0", "1_0", "9_9", "00_1", "sticky", "min_traffic", "balance_subtopology",
         "no:such", "nothing", "kill", "a\nb", "\x00", "taskplace.transcript/1"]
    )
    | st.lists(st.none() | st.integers() | st.text(max_size=2), max_size=2)
    | st.dictionaries(st.sampled_from(["id", "a", "0_0", "kind", "\udfff"]), st.integers(), max_size=2)
)  # fmt: skip


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, v in inner for place in _places(v, (*at, key)))]


@st.composite
def _mutated(draw: Callable[..., Any], document: Any) -> Any:
    """Return the document with one to three of its values replaced, removed, renamed or repeated."""
    out = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(_places(out)[1:] or [(None,)]))
        if last is None:
            return draw(JUNK)
        holder = out
        for key in way:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "replace", "remove", "rename", "again"]))
        if how == "replace":
            holder[last] = draw(JUNK)
        elif how == "remove":
            del holder[last]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        else:
            holder[draw(st.sampled_from(["x", "0_1", "b", "name", "tasks", "\ud800"]))] = holder[last]
    return out


def _run(*command: str) -> tuple[int, str]:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()  # strict, like a terminal
    with redirect_stdout(out), redirect_stderr(err):
        code = main(command)
        out.flush()
    return code, err.getvalue()


def _judge(*command: str) -> None:
    code, said = _run(*command)
    assert code in (0, 1, 2, 3)
    assert "Traceback" not in said
    if code == 2:
        assert said.startswith("taskplace: ") and said.count("\n") == 1 and said.endswith("\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def _write(folder: Path, name: str, value: Any) -> str:
    (folder / name).write_text(json.dumps(value))
    return str(folder / name)


FUZZ = settings(max_examples=150, deadline=None)


@FUZZ
@given(document=_mutated(PROBLEM), output=st.sampled_from(["text", "json"]))
def test_any_problem(folder: Path, document: Any, output: str) -> None:
    file = _write(folder, "problem.json", document)
    for command in ("plan", "explain", "verify"):
        _judge(command, file, "--output", output)
    _judge("explain", file, "--can-remove", "a", "--output", output)
    _judge("simulate", file, "--limit", "3", "--output", output)


@FUZZ
@given(document=_mutated(PLAN), output=st.sampled_from(["text", "json"]))
def test_any_plan(folder: Path, document: Any, output: str) -> None:
    problem = _write(folder, "problem.json", PROBLEM)
    _judge("verify", problem, "--plan", _write(folder, "plan.json", document), "--output", output)


@FUZZ
@given(document=_mutated(EVENTS), output=st.sampled_from(["text", "json"]))
def test_any_events(folder: Path, document: Any, output: str) -> None:
    problem = _write(folder, "problem.json", PROBLEM)
    events = _write(folder, "events.json", document)
    _judge("simulate", problem, "--events", events, "--limit", "3", "--output", output)


@FUZZ
@given(document=_mutated(TRANSCRIPT), output=st.sampled_from(["text", "json"]))
def test_any_transcript(folder: Path, document: Any, output: str) -> None:
    if isinstance(document, dict):
        document = {**document, "schema": "taskplace.transcript/1"}
        limit = document.get("limit")
        if isinstance(limit, int) and limit > 5:
            document["limit"] = 5
    _judge("simulate", _write(folder, "transcript.json", document), "--output", output)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"kind": "add"}, "events[0][0].name: found nothing, expected a value: 'add' needs it"),
        ({"kind": "add", "name": "c", "capacity": "2"}, "events[0][0].capacity: found '2'"),
        ({"kind": "add", "name": "a"}, "simulate.instance: found 'a', expected a new instance"),
        ({"kind": "add", "name": "c", "tagz": {}}, "did you mean 'tags'?"),
        ({"kind": "kill", "name": "z"}, "simulate.instance: found 'z', expected a running instance"),
        ({"kind": "grow"}, "events[0][0].tasks: found nothing"),
        ({"kind": "grow", "tasks": [{"id": "0-3"}]}, "events[0][0].tasks[0].id: found '0-3'"),
        ({"kind": "produce", "records": -1}, "events[0][0].records: found -1"),
        ({"kind": "produce", "task": "9_9", "records": 1}, "simulate.task: found '9_9'"),
        ({"kind": "lag", "name": "a", "task": "0_0"}, "events[0][0].records: found nothing"),
        ({"kind": "lag", "name": "z", "task": "0_0", "records": 1}, "found 'z', expected a running instance"),
        ({"kind": "stick", "name": "z", "task": "0_0"}, "found 'z', expected a running instance"),
        ({"kind": ["add"]}, "events[0][0].kind: found ['add']"),
        ("add", "events[0][0]: found 'add', expected an object"),
    ],
)
def test_events_are_judged(tmp_path: Path, event: object, says: str) -> None:
    problem = _write(tmp_path, "problem.json", PROBLEM)
    code, said = _run("simulate", problem, "--events", _write(tmp_path, "events.json", [[event]]))
    assert (code, says in said, said.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("missing", ["problem", "restore_rate", "limit", "events", "plans"])
def test_an_incomplete_transcript(tmp_path: Path, missing: str) -> None:
    part = {k: v for k, v in TRANSCRIPT.items() if k != missing}
    code, said = _run("simulate", _write(tmp_path, "transcript.json", part))
    assert code == 2 and f"transcript.{missing}: found nothing" in said


@pytest.mark.parametrize(
    "text", ['{"tasks": [NaN]}', "[1" + "0" * 5000 + "]", '"\\ud800"', "[" * 100_000, "\x00"]
)
def test_what_is_no_json_document(tmp_path: Path, text: str) -> None:
    (tmp_path / "problem.json").write_text(text)
    code, said = _run("plan", str(tmp_path / "problem.json"))
    assert code == 2
    assert said.count("\n") == 1


def test_standard_input_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe{"), "utf-8"))
    code, said = _run("plan", "-")
    assert code == 2
    assert "bytes that are not UTF-8" in said
