"""The site builds without a warning, needs no network, and has every page in its contents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("furo")
pytest.importorskip("myst_parser")

from tests.support.pages import ROOT

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


def test_the_reference_has_the_public_names(site: Path) -> None:
    import taskplace
    from taskplace.spark import processors

    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    names = [f"taskplace.{name}" for name in taskplace.__all__]
    names += [f"taskplace.spark.processors.{name}" for name in processors.__all__]
    assert [name for name in names if f'id="{name}"' not in pages] == []
