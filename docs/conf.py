"""Sphinx's configuration: `make docs`. The site needs no network, neither to build nor to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from docstrings import to_rst  # noqa: E402 - lies beside this file

import taskplace  # noqa: E402 - of this tree

project = "taskplace"
release = taskplace.__version__
copyright = "taskplace, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "taskplace"
html_show_sourcelink = False
html_copy_source = False
pygments_style, pygments_dark_style = "default", "monokai"

#: Anchors as GitHub makes them, so that a link works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
#: A name in an annotation may be that of several classes, such as `Store`.
suppress_warnings = ["ref.python"]
#: Pages that the contents name, and that need not be there.
OPTIONAL = ("operations", "metrics")

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": False}
python_use_unqualified_type_names = True
default_role = "literal"


def setup(app: Any) -> None:
    """Read docstrings as this project writes them."""

    def converted(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = to_rst(lines)

    def without_missing(app: Any, name: str, text: list[str]) -> None:
        if name == "index":
            lines = text[0].split("\n")
            text[0] = "\n".join(
                line for line in lines if line not in OPTIONAL or Path(app.srcdir, f"{line}.md").exists()
            )

    app.connect("autodoc-process-docstring", converted)
    app.connect("source-read", without_missing)
