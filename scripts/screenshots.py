"""Takes the screenshots of docs/report.md and README.md into docs/img: `make screenshots`.

They are of a real run: `conf/flights.yaml` on eight files, with an executor that is killed in batch 3. It takes about a
minute; `--lines FILE` uses the lines of an earlier run. The live page is told the same events again, up to a moment
after the loss. Needs Chromium (`scripts/chromium.sh`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from PIL import Image

from taskplace.report.html import RunRecorder, report_of_lines, write_page
from taskplace.report.html.live import LivePage
from taskplace.report.html.values import InstanceRow, Now, Reason, Report, State
from taskplace.report.json_lines import Loss
from taskplace.report.run_lines import RunLines, read_run_lines, retell
from tests.support.browser import Browser, chromium

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
KILLED_IN = 3
COMMAND = "import sys; from taskplace.cli import main; sys.exit(main())"
#: What the job leaves behind goes where nothing else is.
PLACES = ("checkpoint.dir", "state.dir", "output.dir", "report.html", "report.events")


def lines_of_a_run(folder: Path) -> Path:
    """Run the flights job, and return the file of its lines."""
    given = [f"{key}={folder / key}" for key in PLACES]
    given += ["input.files=8", f"chaos=[{{batch: {KILLED_IN}, kill: executor-with-most-active}}]"]
    command = [sys.executable, "-c", COMMAND, "run", "conf/flights.yaml"]
    subprocess.run([*command, *(f"--set={each}" for each in given)], cwd=ROOT, check=True)
    return folder / "report.events"


class After:
    """A stream as it was a moment after its first loss, for the live page."""

    def __init__(self, run: RunLines) -> None:
        at = next(moment for moment, line in run.lines if isinstance(line, Loss))
        batches = [moment for moment, line in run.lines if type(line).__name__ == "Batch" and moment > at]
        until = batches[0]
        now = run.began

        def set_now(moment: float) -> None:
            nonlocal now
            now = moment

        self.recorder = RunRecorder(run.title, clock=lambda: now, began=run.began)
        retell(replace(run, lines=tuple(one for one in run.lines if one[0] <= until)), self.recorder, set_now)

    def report(self) -> Report:
        """Return the report so far."""
        return self.recorder.report()

    def now(self) -> Now:
        """Return what is going on."""
        rows: tuple[InstanceRow, ...] = ()
        return Now(
            State("running", f"batch {KILLED_IN + 1} runs for 2 s", "good", live=True), rows, version=1
        )

    def reasons(self) -> tuple[Reason, ...]:
        """Return nothing: the picture ends above."""
        return ()


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a Chromium with a profile of its own."""
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as made:
        yield made


def shoot(browser: Browser, name: str, *, section: str | None = None, height: int | None = None) -> None:
    """Take a picture of the window, or of one section, as a small file."""
    time.sleep(0.5)  # the charts are drawn when they have a size
    if section is not None:
        data = browser.one(f"#{section}").screenshot_as_png
    else:
        data = browser.driver.get_screenshot_as_png()
    image = Image.open(BytesIO(data)).convert("RGB")
    if height is not None:
        image = image.crop((0, 0, image.width, min(height, image.height)))
    few = image.quantize(colors=128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(IMAGES / f"{name}.png", optimize=True)


def take(lines: Path) -> None:
    """Take all pictures of a run."""
    run = read_run_lines(lines.read_text(), str(lines))
    with tempfile.TemporaryDirectory() as folder, browser() as seen:
        page = write_page(report_of_lines(run), Path(folder) / "report.html")
        seen.open(page, width=1180, height=1220)
        shoot(seen, "report-light")
        loss = next(step for step in seen.document()["steps"] if "lost" in step["text"])
        seen.script(
            """const of = document.querySelector('#placement select[aria-label=After]');
            const k = [...of.options].findIndex((one) => one.textContent === arguments[0]);
            of.value = k; document.querySelector('#placement select[aria-label=Before]').value = k - 1;
            of.dispatchEvent(new Event('change'))""",
            loss["label"],
        )
        seen.resize(1180, 2400)
        shoot(seen, "report-placement", section="placement")
        seen.open(page, width=1180, height=1220, dark=True)
        shoot(seen, "report-dark")
        seen.open(page, width=390, height=844)
        shoot(seen, "report-phone")
        live = LivePage(After(run))
        seen.open(live.url, width=1180, height=900, dark=True)
        seen.wait(lambda: seen.texts("#state-text") == [f"batch {KILLED_IN + 1} runs for 2 s"])
        shoot(seen, "report-live")
        live.close()


def main() -> None:
    """Read the command line, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=Path, help="the lines of an earlier run (report.events)")
    given = parser.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        take(given or lines_of_a_run(Path(folder)))


if __name__ == "__main__":
    main()
