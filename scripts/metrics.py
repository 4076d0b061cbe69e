"""Writes the tables of docs/metrics.md from the code: `python scripts/metrics.py`.

The tables stand between marks, and the text around them is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from taskplace.record.metrics import SECTIONS, Metric

FILE = Path(__file__).parents[1] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: written by scripts/metrics.py -->", "<!-- end of metrics -->"


def metrics() -> str:
    """Return the tables of all metrics."""
    parts = []
    for title, section in SECTIONS.items():
        rows = ["| name | unit | meaning | Kafka's name |", "|---|---|---|---|", *map(_row, section)]
        parts.append(f"### {title}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _row(metric: Metric) -> str:
    labels = f", by {' and '.join(metric.labels)}" if metric.labels else ""
    kafka = "the same" if metric.kafka == metric.name else f"`{metric.kafka}`" if metric.kafka else ""
    name = f"`{metric.name}`{' *' if metric.kept else ''}"
    return f"| {name} | {metric.unit}{labels} | {metric.doc} | {kafka} |"


def page(text: str) -> str:
    """Return a page with its tables written anew. Errors: `ValueError` for a page without the marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{FILE.name}: found no marks {BEGIN!r} and {END!r}, expected them once")
    new = f"{BEGIN}\n\n{metrics()}\n\n{END}"
    return pattern.sub(lambda _: new, text)


if __name__ == "__main__":
    FILE.write_text(page(FILE.read_text(encoding="utf-8")), encoding="utf-8")
