"""The JSON Schemas say what the readers accept and the writers write."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Task
from taskplace.cli import main
from taskplace.model.schema import NAMES, schema
from tests.support.scenarios import KINDS, scenario

verify = importlib.import_module("taskplace.verify")

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _outside(value: float, rule: dict[str, Any]) -> bool:
    if value > rule.get("maximum", value):
        return True
    return value < rule.get("minimum", value) or value <= rule.get("exclusiveMinimum", value - 1)


def fits(value: Any, rule: dict[str, Any], root: dict[str, Any], path: str = "$") -> list[str]:
    """Return what of `value` breaks a schema; knows the keywords that ours use, and complains of others."""
    known = {
        "$schema", "$id", "$defs", "$ref", "title", "description", "default", "type", "required", "properties",
        "additionalProperties", "propertyNames", "items", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
        "minLength", "minItems", "uniqueItems", "pattern",
    }  # fmt: skip
    assert set(rule) <= known, set(rule) - known
    if "$ref" in rule and not rule["$ref"].startswith("#"):
        other = schema(rule["$ref"].removeprefix("../taskplace.").removesuffix("/1"))
        return fits(value, other, other, path)
    if "$ref" in rule:
        return fits(value, root["$defs"][rule["$ref"].removeprefix("#/$defs/")], root, path)
    names = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", [])
    right = [
        n for n in names if isinstance(value, TYPES[n]) and (n == "boolean" or not isinstance(value, bool))
    ]
    if names and not right:
        return [f"{path}: no {names}"]
    out = []
    if "enum" in rule and value not in rule["enum"]:
        out.append(f"{path}: {value!r}")
    if "const" in rule and value != rule["const"]:
        out.append(f"{path}: {value!r}")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _outside(value, rule):
        out.append(f"{path}: {value!r} out of range")
    if isinstance(value, str) and len(value) < rule.get("minLength", 0):
        out.append(f"{path}: too short")
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        out.append(f"{path}: {value!r}")
    if isinstance(value, list):
        if len(value) < rule.get("minItems", 0) or (
            rule.get("uniqueItems") and len(set(value)) != len(value)
        ):
            out.append(f"{path}: items")
        for k, item in enumerate(value):
            out += fits(item, rule.get("items", {}), root, f"{path}[{k}]")
    if isinstance(value, dict):
        out += [f"{path}: {k} is missing" for k in rule.get("required", ()) if k not in value]
        for k, item in value.items():
            other = rule.get("additionalProperties", {})
            inner = rule.get("properties", {}).get(k, other)
            if inner is False:
                out.append(f"{path}: {k} is not known")
                continue
            out += fits(k, rule.get("propertyNames", {}), root, f"{path}.{k}")
            out += fits(item, inner, root, f"{path}.{k}")
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_fits(kind):
    problem = scenario(kind, 1, largest=0.4).problem
    rules = {name: schema(name) for name in NAMES}
    assert all(rule["$id"] == f"taskplace.{name}/1" for name, rule in rules.items())
    assert fits(problem.to_dict(), rules["problem"], rules["problem"]) == []
    assert fits(taskplace.plan(problem).to_dict(), rules["plan"], rules["plan"]) == []


def _files(tmp_path: Path, **documents: object) -> dict[str, str]:
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
    return {name: str(tmp_path / name) for name in documents}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_commands_print_fits(kind, tmp_path, capsys):
    s = scenario(kind, 7, largest=0.4)
    broken = taskplace.plan(s.problem).to_dict()
    broken["assignment"] = {name: {} for name in broken["assignment"]}
    events = [[e.to_dict() for e in group] for group in s.events]
    f = _files(tmp_path, problem=s.problem.to_dict(), plan=broken, events=events)
    name = s.problem.instances[0].id
    for wanted, *command in (
        ("explanation", "explain", f["problem"]),
        ("removal", "explain", f["problem"], "--can-remove", name),
        ("verification", "verify", f["problem"]),
        ("verification", "verify", f["problem"], "--plan", f["plan"]),
        ("transcript", "simulate", f["problem"], "--events", f["events"], "--restore-rate", "250"),
    ):
        assert main([*command, "--output", "json"]) in (0, 1, 3)
        rule = schema(wanted)
        assert fits(json.loads(capsys.readouterr().out), rule, rule) == [], command


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
    rule = schema("problem")
    assert fits(value, rule, rule)
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
    assert set(schema("plan")["properties"]) == {
        "schema",
        *(f.name for f in fields(taskplace.Plan) if f.compare),
    }
