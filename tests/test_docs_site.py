"""The site builds without a warning, needs no network, and has every page in its contents."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("furo")
pytest.importorskip("myst_parser")

from tests.support.pages import ROOT

#: The packages whose public names the reference has.
PUBLIC = (
    "taskplace", "taskplace.explanation", "taskplace.groups.local", "taskplace.groups.partitioner",
    "taskplace.groups.partitions", "taskplace.record", "taskplace.record.html", "taskplace.simulation",
    "taskplace.spark", "taskplace.spark.processors", "taskplace.spark.testing", "topology",
)  # fmt: skip

pytestmark = pytest.mark.long  # 20 s of processor time


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "trees"), "docs"]
    made = subprocess.run(
        [sys.executable, *command, str(out / "html")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return out / "html"


def test_every_page_is_there_and_in_the_contents(site: Path) -> None:
    contents = (site / "index.html").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert (site / f"{page.stem}.html").exists(), page
        assert page.stem == "index" or f'href="{page.stem}.html"' in contents, page


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links may lead elsewhere. Scripts, styles, fonts and pictures are files of the site."""
    loaded = {
        found
        for page in site.rglob("*.html")
        for found in re.findall(
            r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b[^>]*\bhref=\"([^\"]+)\"",
            page.read_text(encoding="utf-8"),
        )
        for found in found
        if found
    }
    assert loaded
    assert not [place for place in loaded if re.match(r"(?:\w+:)?//", place)]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", styles)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_the_public_names(site: Path, module: str) -> None:
    """A name may be there as that of another public package, or of the module where it is defined."""
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    documented = set(re.findall(r'\bid="([\w.]+)"', pages))
    names = public_names()
    missing = [
        name
        for name in names[module]
        if documented.isdisjoint(other for each in names.values() for other in each if same(name, other))
        and documented.isdisjoint(defined_as(name))
    ]
    assert missing == []


def public_names() -> dict[str, list[str]]:
    """Return the full public names by module, lazily exported ones included."""
    found = {}
    for module in PUBLIC:
        loaded = importlib.import_module(module)
        own = [name for name, value in vars(loaded).items() if getattr(value, "__module__", "") == module]
        listed = getattr(loaded, "__all__", [name for name in own if not name.startswith("_")])
        found[module] = [f"{module}.{name}" for name in listed]
    return found


def value_of(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def same(one: str, other: str) -> bool:
    return one == other or (callable(value_of(one)) and value_of(one) is value_of(other))


def defined_as(name: str) -> list[str]:
    value = value_of(name)
    home = getattr(value, "__module__", None)
    return [f"{home}.{value.__qualname__}"] if home and hasattr(value, "__qualname__") else []
