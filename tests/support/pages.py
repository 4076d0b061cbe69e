"""The fenced blocks of the pages of the documentation, and the pages themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: str, kind: str) -> list[str]:
    """Return the blocks of a page ("docs/windows.md") whose fence has exactly this text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", text, re.M | re.S)


def run(
    page: str, namespace: dict[str, Any], of: slice = slice(None), data: Path | None = None
) -> dict[str, Any]:
    """Run the Python blocks of a page in turn, in one namespace, and return it. Doctests are not run.

    `data`: a directory to use in place of the page's "/data".
    """
    for number, block in enumerate(blocks(page, "python")[of]):
        if ">>>" not in block:
            block = block.replace('"/data/', f'"{data}/') if data is not None else block
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)
    return namespace
