"""The JSON Schemas say what the readers accept and the writers write."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import taskplace
from taskplace import Instance, PlacementConfig, Task
from taskplace.cli import main
from taskplace.model.schema import NAMES, schema
from tests.support.scenarios import KINDS, scenario

REGISTRY = Registry().with_resources(
    (f"taskplace.{name}/1", Resource.from_contents(schema(name))) for name in NAMES
)


def broken(value: object, name: str) -> list[str]:
    """Return what of a value breaks the schema of that name."""
    validator = Draft202012Validator(schema(name), registry=REGISTRY)
    validator.check_schema(schema(name))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_fits(kind):
    problem = scenario(kind, 1, largest=0.4).problem
    assert broken(problem.to_dict(), "problem") == []
    assert broken(taskplace.plan(problem).to_dict(), "plan") == []
    assert all(schema(name)["$id"] == f"taskplace.{name}/1" for name in NAMES)


def _files(tmp_path: Path, **documents: object) -> dict[str, str]:
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
    return {name: str(tmp_path / name) for name in documents}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_commands_print_fits(kind, tmp_path, capsys):
    s = scenario(kind, 7, largest=0.4)
    empty = taskplace.plan(s.problem).to_dict()
    empty["assignment"] = {name: {} for name in empty["assignment"]}
    events = [[e.to_dict() for e in group] for group in s.events]
    f = _files(tmp_path, problem=s.problem.to_dict(), plan=empty, events=events)
    name = s.problem.instances[0].id
    for wanted, *command in (
        ("explanation", "explain", f["problem"]),
        ("removal", "explain", f["problem"], "--can-remove", name),
        ("verification", "verify", f["problem"]),
        ("verification", "verify", f["problem"], "--plan", f["plan"]),
        ("transcript", "simulate", f["problem"], "--events", f["events"], "--restore-rate", "250"),
    ):
        assert main([*command, "--output", "json"]) in (0, 1, 3)
        assert broken(json.loads(capsys.readouterr().out), wanted) == [], command


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": [{"id": "00_1"}]},
        {"tasks": [{"id": "0_1", "weight": 0}]},
        {"tasks": [{"id": "0_1", "offset": 1}]},
        {"instances": []},
        {"instances": [{"id": "a", "lags": {"x": 0}}]},
        {"instances": [{"id": "a", "capacity": -1}]},
        {"instances": [{"id": "a", "capacity": 1_000_001}]},
        {"tasks": [{"id": "0_1", "weight": 1e13}]},
        {"config": {"rack.aware.assignment.traffic_cost": 1_000_001}},
        {"config": {"task.assignor": ""}},
        {"config": {"max.warmup.replicas": 0}},
        {"config": {"num.standby.replica": 0}},
    ],
)
def test_what_is_refused_does_not_fit(change):
    value = {"tasks": [{"id": "0_1"}], "instances": [{"id": "a"}], **change}
    assert broken(value, "problem")
    with pytest.raises(taskplace.errors.InputError):
        taskplace.plan(value)


def test_fields_keys_and_defaults_are_the_same_as_in_the_code():
    rule = schema("problem")["properties"]
    keys = rule["config"]["properties"]
    second_names = {found.second_name for found in PlacementConfig.declared_keys()}
    config = {key: spec["default"] for key, spec in keys.items() if key not in second_names}
    assert config == PlacementConfig().to_properties()
    assert set(rule["tasks"]["items"]["properties"]) == set(Task._fields)
    defaults = {k: s["default"] for k, s in rule["tasks"]["items"]["properties"].items() if "default" in s}
    assert defaults == {k: ([] if v == () else v) for k, v in Task._field_defaults.items()}
    assert set(rule["instances"]["items"]["properties"]) == set(Instance.__dataclass_fields__)
    of_plan = {f.name for f in fields(taskplace.Plan) if f.compare}
    assert set(schema("plan")["properties"]) == {"schema", *of_plan}
