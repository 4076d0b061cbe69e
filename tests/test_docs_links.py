"""Links between the pages of the documentation lead somewhere, and say where in words, on GitHub and on the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def links(page: Path) -> list[tuple[str, str]]:
    """Return text and target of each link, but for those in code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", text))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().strip())
        slug = plain = words.replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{plain}-{number}"
        found.add(slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_links_have_words_and_lead_to_a_heading(page):
    named = [text for text, target in links(page) if re.search(r"\.md\b", text) and ".md" in target]
    assert named == [], "write the page's title, or words, in place of its file's name"
    for text, target in links(page):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target) or (path and not path.endswith(".md")):
            continue
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), (text, target)
        assert not anchor or anchor in anchors(other), (text, target)
