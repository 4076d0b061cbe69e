"""Writes the tables of rules in docs/doctor.md from the rules themselves: `python scripts/doctor.py`.

The tables stand between marks, and the text around them is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from taskplace.doctor import RULES, SUBJECTS, Rule

FILE = Path(__file__).parents[1] / "docs" / "doctor.md"
BEGIN, END = "<!-- rules: written by scripts/doctor.py -->", "<!-- end of rules -->"
#: The facts that a rule needs beside the file itself.
NEEDS = {
    "topology": "the topology",
    "stores": "Spark's packages",
    "checkpoint": "`--checkpoint`",
}


def tables() -> str:
    """Return a table of rules for each subject."""
    parts = [f"{len(RULES)} rules:"]
    for subject, rules in SUBJECTS.items():
        rows = ["| rule | worst | looks for | needs | also for steered queries |", "|---|---|---|---|---|"]
        parts.append(f"### {subject}\n\n" + "\n".join([*rows, *map(_row, rules)]))
    return "\n\n".join(parts)


def _row(rule: Rule) -> str:
    needs = ", ".join(NEEDS[need] for need in rule.needs)
    cells = (f"`{rule.id}`", rule.severity, rule.looks_for, needs, "yes" if rule.steered else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(text: str) -> str:
    """Return the page with its tables written anew. Errors: `ValueError` for a page without their marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{FILE.name}: found no marks {BEGIN!r} and {END!r}, expected them once")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", text)


if __name__ == "__main__":
    FILE.write_text(page(FILE.read_text(encoding="utf-8")), encoding="utf-8")
