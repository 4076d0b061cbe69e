"""`taskplace run FILE --check` refuses fields that no code reads."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

pytest.importorskip("pyspark")

from taskplace.cli import main

FILE = {
    "application": {"id": "orders"},
    "topology": {
        "sources": {"orders": {"key": "customer", "partitions": 2}},
        "nodes": {
            "n": {"process": "orders", "processor": "count", "options": {"by": {"customer": "string"}}},
            "out": {"sink": "n"},
        },
    },
    "input": {"orders": {"format": "parquet", "path": "in", "schema": "id long, customer string"}},
    "output": {"out": {"path": "out"}},
}


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


def test_an_unknown_field_is_refused_at_every_level(capsys):
    """All but `options` of a source of Spark, and `conf`: those are Spark's own."""
    full = copy.deepcopy(FILE)
    full["topology"]["sources"]["orders"]["options"] = {"delay": "1 hour", "event_time": "at"}
    full["topology"]["nodes"]["n"]["options"]["window"] = {"column": "at", "size": "1 hour"}
    full["input"]["orders"] = {
        "kafka": {
            "topic": "t", "servers": "b:1", "key": {"format": "raw", "column": "customer", "kind": "string"},
            "value": {"format": "json", "columns": {"at": "timestamp"}},
        }
    }  # fmt: skip
    full["output"]["out"] = {"kafka": {"topic": "o", "servers": "b:1", "key": "customer"}}
    full |= {"checkpoint": {}, "state": {}, "runtime": {}, "placement": {}, "report": {}, "spark": {}}
    names = {
        "sources",
        "nodes",
        "input",
        "output",
        "columns",
        "by",
    }  # whose keys are names that the user gives
    for path in paths(full):
        if path and path[-1] in names:
            continue
        document = copy.deepcopy(full)
        inner = document
        for key in path:
            inner = inner[key]
        inner["unknwn"] = 1
        Path("app.yaml").write_text(yaml.safe_dump(document))
        assert main(["run", "app.yaml", "--check"]) == 2, path
        said = capsys.readouterr().err
        assert "unknwn: found an unknown " in said, (path, said)


def paths(value, path=()):
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
