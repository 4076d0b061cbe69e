"""Pictures of pages: the page of a run, light, dark and on a phone, and its live page."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import msgspec
from job import ROOT, Job
from PIL import Image

from taskplace.record.html import Report, write_page
from tests.support.browser import Browser, chromium

IMAGES = ROOT / "docs" / "img"
#: The most bytes of a picture: with fewer colours it is smaller.
MOST_BYTES = 250_000
DATA = re.compile(r'<script type="application/json" id="report">(.*?)</script>', re.S)


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a Chromium with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as made:
        yield made


def save(data: bytes, name: str) -> None:
    """Save a picture as a small file. Errors: `ValueError` if it stays large."""
    image = Image.open(BytesIO(data)).convert("RGB")
    for colours in (256, 128, 64, 32):
        few = image.quantize(colors=colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        packed = BytesIO()
        few.save(packed, "PNG", optimize=True)
        if len(packed.getvalue()) <= MOST_BYTES:
            (IMAGES / f"{name}.png").write_bytes(packed.getvalue())
            print(f"docs/img/{name}.png {len(packed.getvalue()):,} bytes")
            return
    raise ValueError(f"{name}: larger than {MOST_BYTES:,} bytes")


def shoot(seen: Browser, name: str, *, section: str | None = None) -> None:
    """Take a picture of the window, or of one section."""
    seen.wait(lambda: seen.all(".chart canvas"))
    time.sleep(0.5)  # charts are drawn when they have a size
    shown = (
        seen.driver.get_screenshot_as_png() if section is None else seen.one(f"#{section}").screenshot_as_png
    )
    save(shown, name)


def live_page(seen: Browser, job: Job) -> None:
    """Take the picture of the live page when an executor has died, and its replacement warms up."""
    job.wait(job.now)
    seen.open(job.url, width=1180, height=1240, dark=True)
    job.wait(lambda: seen.figures().get("executors lost") == "1")
    job.wait(job.warm_ups)
    job.wait(lambda: any(text.strip() != "0" for text in seen.texts('#now td[data-label="warm-up"]')))
    shoot(seen, "report-live")


def pages_of(seen: Browser, folder: Path) -> None:
    """Take the pictures of the page that a run has left behind, as the code makes it now."""
    found = DATA.search((folder / "var" / "flights" / "report.html").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{folder}: there is no data in the page of the run")
    page = write_page(msgspec.json.decode(found[1], type=Report), folder / "page.html")
    seen.open(page, width=1180, height=1240)
    shoot(seen, "report-light")
    loss = next(one for one in seen.document()["steps"] if "lost" in one["text"])
    button = f"#timeline button[aria-label='Show the placement of {loss['label']}']"
    seen.resize(1180, 2400)
    seen.script("document.querySelector(arguments[0]).click()", button)
    shoot(seen, "report-placement", section="placement")
    seen.open(page, width=1180, height=1080)
    seen.script("document.querySelector('#batches').scrollIntoView()")
    shoot(seen, "report-charts")
    seen.open(page, width=1180, height=1240, dark=True)
    shoot(seen, "report-dark")
    seen.open(page, width=390, height=844, scale=2)
    shoot(seen, "report-phone")
