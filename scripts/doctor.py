"""Writes the table of rules in docs/doctor.md from the rules themselves: `python scripts/doctor.py`.

The table stands between marks, and the text around them is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from taskplace.doctor import RULES, Rule

FILE = Path(__file__).parents[1] / "docs" / "doctor.md"
BEGIN, END = "<!-- rules: written by scripts/doctor.py -->", "<!-- end of rules -->"
#: The facts that a rule needs beside the file itself.
NEEDS = {
    "topology": "the topology",
    "stores": "Spark's packages",
    "checkpoint": "`--checkpoint`",
}


def table() -> str:
    """Return the table of all rules."""
    rows = ["| rule | worst | finds | needs | also for steered queries |", "|---|---|---|---|---|"]
    return "\n".join([*rows, *map(_row, RULES)])


def _row(rule: Rule) -> str:
    needs = ", ".join(NEEDS[need] for need in rule.needs)
    cells = (f"`{rule.id}`", rule.severity, rule.finds, needs, "yes" if rule.steered else "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page(text: str) -> str:
    """Return the page with its table written anew. Errors: `ValueError` for a page without its marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{FILE.name}: found no marks {BEGIN!r} and {END!r}, expected them once")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", text)


if __name__ == "__main__":
    FILE.write_text(page(FILE.read_text(encoding="utf-8")), encoding="utf-8")
