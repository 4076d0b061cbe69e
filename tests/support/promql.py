"""Finds the names of metrics in PromQL, and all PromQL in `conf`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

CONF = Path(__file__).parents[2] / "conf"
ALERTS = CONF / "prometheus" / "alerts.yml"
DASHBOARD = CONF / "grafana" / "taskplace.json"
#: The parser does not know Grafana's variables.
_VARIABLES = {"$__rate_interval": "5m", "$stream": ".*"}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(ALERTS.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Return all PromQL, by where it is."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    for panel in panels():
        found |= {f"{panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    dashboard = json.loads(DASHBOARD.read_text())
    found |= {each["name"]: each["expr"] for each in dashboard["annotations"]["list"]}
    return found


def selected(expression: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each metric that an expression selects, with the labels that it is selected by. `ValueError` if invalid."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    found: list[tuple[str, frozenset[str]]] = []

    def look(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name, frozenset(each.name for each in node.matchers.matchers)))
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    yield from found
