"""docs/configuration.md has the options as the code takes them; its examples are valid."""

from __future__ import annotations

import copy
import inspect
import re
import sys

import pytest
import yaml

pytest.importorskip("confluent_kafka")

from taskplace.cli import main
from taskplace.spark import processors
from taskplace.spark.registry import Registry
from taskplace.spark.stub_processors import STATEFUL
from taskplace.spec import nodes
from tests.support.pages import ROOT

PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
ORDERS = "id long, customer string, cents long, at timestamp"
FILE = {
    "application": {"id": "x"},
    "topology": {
        "sources": {
            "orders": {"key": "customer", "partitions": 4, "options": {"event_time": "at"}},
            "customers": {"key": "customer", "partitions": 4},
        },
        "nodes": {"totals": {"sink": "orders"}, "places": {"sink": "customers"}},
    },
    "input": {
        "orders": {"format": "parquet", "path": "in/orders", "schema": ORDERS},
        "customers": {
            "format": "parquet",
            "path": "in/customers",
            "schema": "customer string, city string, since timestamp, gone boolean",
        },
    },
    "output": {"totals": {"path": "out/totals"}, "places": {"path": "out/places"}},
}
OWN = """
def largest(key, rows, state):
    return state, rows


def large(context, rows, *, least):
    return rows
"""


def examples() -> dict[str, dict]:
    """Return the entry of each example, by the heading above it."""
    found = {}
    for part in PAGE.split("\n### ")[1:]:
        heading = part.partition("\n")[0]
        for block in re.findall(r"^```yaml\n(.*?)^```$", part, re.M | re.S):
            found[heading] = yaml.safe_load(block)
    return found


EXAMPLES = examples()


def document(heading: str) -> dict:
    """Return an application with an example in its place."""
    made = copy.deepcopy(FILE)
    ((name, entry),) = EXAMPLES[heading].items()
    if "input" in heading:
        made["input"][name] = entry
    elif "output" in heading:
        made["output"][name] = entry
    elif "topology.sources" in heading:
        made["topology"]["sources"][name] = entry
    else:
        made["topology"]["nodes"][name] = entry
        made["topology"]["nodes"]["totals"]["sink"] = name
    return made


@pytest.mark.parametrize("heading", EXAMPLES)
def test_the_examples_are_valid(heading, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_processors", raising=False)
    (tmp_path / "my_processors.py").write_text(OWN)
    for name in FILE["input"]:
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(document(heading)))
    assert main(["run", "x.yaml", "--check"]) == 0, capsys.readouterr().err
    assert "x.yaml: valid; x: " in capsys.readouterr().out


def test_every_processor_has_a_table_and_an_example():
    for name in Registry():
        heading = f"The processor `{name}` (`topology.nodes.NAME.options`)"
        assert heading in EXAMPLES
        ((_, entry),) = EXAMPLES[heading].items()
        assert entry["processor"] == name
        assert re.search(rf"^### {re.escape(heading)}\n\n.*\n\n\| field ", PAGE, re.M)


def test_the_fields_are_those_that_the_code_takes():
    def arguments(made):
        return {
            name for name, each in inspect.signature(made).parameters.items() if each.kind != each.VAR_KEYWORD
        }

    for name, kind in nodes.PROCESSORS.items():
        made = getattr(processors, STATEFUL[name])
        more = {"aggregates"} if name == "aggregate" else set()
        assert set(kind.__struct_fields__) == arguments(made) | more, name
    assert set(nodes.Window.__struct_fields__) == arguments(processors.Tumbling)


def test_defaults_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(grace|emit|most_records|how)` \|(.*)\|$", PAGE, re.M))
    assert "| `0` |" in rows["grace"]
    assert "| `changes` |" in rows["emit"]
    assert "| `100000` |" in rows["most_records"]
    assert "| `left` |" in rows["how"]
