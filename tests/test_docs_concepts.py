"""The pictures of the page on concepts show what their sources say."""

from __future__ import annotations

import html
import importlib.util
import re
from collections import Counter
from types import ModuleType

import pytest

from tests.support.pages import ROOT


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(texts: list[str]) -> Counter[str]:
    joined = html.unescape(" ".join(texts)).replace("\xa0", " ").replace("\\n", " ").replace("\\l", " ")
    return Counter(re.sub(r"<[^>]+>", " ", joined).split())


@pytest.mark.parametrize("name", ["topology", "loss", "batch"])
def test_a_picture_shows_what_its_source_says(drawing: ModuleType, name: str) -> None:
    picture = (drawing.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    drawn = words(re.findall(r"<text[^>]*>(.*?)</text>", picture))
    dot = drawing.pictures()[name]
    labels = re.findall(r'label="((?:[^"\\]|\\.)*)"', dot) + re.findall(r"label=<(.*?)>[\],\s]*$", dot, re.M)
    assert drawn == words(labels), "run `python scripts/pictures.py`"
    assert f"](img/{name}.svg)" in (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
