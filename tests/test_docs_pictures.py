"""The pictures of the docs: they are there, small, and shown; a terminal is drawn with its colours."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT

LARGEST = 250_000  # bytes
#: An image of a page: its text for those who do not see it, and its file.
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
SCREENSHOTS = sorted((ROOT / "docs" / "img").glob("*.png"))


def shown() -> dict[Path, str]:
    """The images of all pages, with their texts."""
    return {
        (page.parent / file).resolve(): text
        for page in PAGES
        for text, file in IMAGE.findall(page.read_text())
    }


def test_each_image_of_a_page_is_there_and_has_a_text():
    assert shown()
    for file, text in shown().items():
        assert file.is_file(), file
        assert len(text) > 20, file


@pytest.mark.parametrize("picture", SCREENSHOTS, ids=lambda path: path.name)
def test_a_screenshot_is_small_and_shown(picture):
    assert picture.stat().st_size <= LARGEST
    assert picture in shown()


@pytest.fixture
def job(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "screenshots"))
    import job

    yield job
    sys.modules.pop("job")


def test_a_terminal_is_drawn_with_its_colours(job):
    terminal = job.Drawn(columns=40, rows=5)
    terminal.type("taskplace run")
    terminal.python(r"print('\x1b[1;31mlost\x1b[0m, \x1b[2mfaint\x1b[0m')")
    prompt, line = terminal.lines()
    assert (prompt.plain, line.plain) == ("$ taskplace run", "lost, faint")
    styles = {line.plain[span.start]: str(span.style) for span in line.spans}
    assert styles["l"] == "bold red"
    assert styles["f"].startswith("not bold #8a8a8a")
