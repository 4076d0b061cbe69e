"""Writes the tables of docs/metrics.md from the code and from the alert rules: `python scripts/metrics.py`.

The tables stand between marks, and the text around them is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from taskplace.record.metrics import SECTIONS, Metric

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "conf" / "prometheus" / "alerts.yml"


def metrics() -> str:
    """Return the tables of all metrics."""
    parts = []
    for title, section in SECTIONS.items():
        rows = [
            "| name | in Prometheus | type | unit | meaning | Kafka's counterpart |",
            "|---|---|---|---|---|---|",
        ]
        rows += [_row(*_cells(metric)) for metric in section]
        parts.append(f"### {title}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _cells(metric: Metric) -> tuple[str, ...]:
    labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
    kind = f"{metric.kind}, continues over restarts" if metric.kept else metric.kind
    kafka = f"`{metric.kafka}`" if metric.kafka else ""
    return f"`{metric.name}`", f"`{metric.exported}{labels}`", kind, metric.unit, metric.doc, kafka


def alerts() -> str:
    """Return the table of the alert rules."""
    rows = ["| alert | severity | fires if | for | what to do |", "|---|---|---|---|---|"]
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            expr, severity = f"`{rule['expr'].strip()}`", rule["labels"]["severity"]
            rows.append(
                _row(rule["alert"], severity, expr, rule.get("for", ""), rule["annotations"]["remedy"])
            )
    return "\n".join(rows)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


TABLES: Mapping[str, Callable[[], str]] = {"metrics": metrics, "alerts": alerts}


def page(text: str) -> str:
    """Return a page with its tables written anew. Errors: `ValueError` for a page without the marks of a table."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: written by scripts/metrics.py -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"{FILE.name}: found no marks {begin!r} and {end!r}, expected them once")
        new = f"{begin}\n\n{table()}\n\n{end}"
        text = pattern.sub(lambda _, new=new: new, text)
    return text


if __name__ == "__main__":
    FILE.write_text(page(FILE.read_text(encoding="utf-8")), encoding="utf-8")
