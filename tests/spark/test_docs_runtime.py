"""The table of arguments in docs/runtime.md has the arguments of `Placed`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.placed import Placed

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"


def test_the_table_has_each_argument_of_placed_once():
    text = PAGE.read_text(encoding="utf-8").partition("\n| argument | meaning | default |\n")[2]
    rows = text.partition("\n\n")[0].splitlines()[1:]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    keywords = inspect.signature(Placed).parameters.values()
    own = [p.name for p in keywords if p.kind is p.KEYWORD_ONLY]
    assert sorted(listed) == sorted([*own, *(key.field for key in PlacedOptions.declared_keys())])
