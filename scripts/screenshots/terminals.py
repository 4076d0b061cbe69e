"""Pictures of terminals: a screen with its colours as HTML, which Chromium draws."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

from job import CHECKPOINT, COLUMNS, ON_ITS_WAY, Job, plain
from pages import Browser, save
from rich.color import parse_rgb_hex
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.support.pages import blocks

#: Black, red, green, yellow, blue, magenta, cyan and white.
PLAIN = "3c444d ff7b72 56d364 e3b341 79c0ff d2a8ff 56d4dd d8dee6"
BRIGHT = "78828d ffa198 7ee787 f2cc60 a5d6ff e2c5ff 76e3ea ffffff"
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; }}
.window {{ display: inline-block; background: {background}; color: {foreground}; padding: 14px 20px 18px; }}
pre {{ margin: 0; font: 13px/15px "DejaVu Sans Mono", ui-monospace, monospace; }}
</style><div class="window"><pre>{code}</pre></div>"""


def theme() -> TerminalTheme:
    """Return the colours of the pictures."""
    plain_ones, bright = ([parse_rgb_hex(one) for one in colours.split()] for colours in (PLAIN, BRIGHT))
    return TerminalTheme(parse_rgb_hex("15191e"), parse_rgb_hex("d8dee6"), plain_ones, bright)


def picture(seen: Browser, name: str, lines: Sequence[Text]) -> None:
    """Draw a screen, and save its picture."""
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", width=COLUMNS
    )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "screen.html"
        page.write_text(
            console.export_html(theme=theme(), inline_styles=True, code_format=PAGE), encoding="utf-8"
        )
        seen.open(page, width=1000, height=1400, scale=2)
        save(seen.one(".window").screenshot_as_png, name)


def of_checkpoint(seen: Browser, job: Job) -> None:
    """Take pictures of `status` and `explain` while tasks warm up."""

    def status() -> list[Text]:
        job.wait(job.warm_ups)
        lines = job.command("status", CHECKPOINT)
        return lines if "warm-up   " in plain(lines) else []

    def explain() -> list[Text]:
        task = job.wait(job.on_their_way)[-1]  # the last one is on its way for the longest
        lines = job.command("explain", CHECKPOINT, "--task", task)
        return lines if ON_ITS_WAY in " ".join(plain(lines).split()) else []

    shown = (
        job.wait(explain),
        job.wait(status),
    )  # in this order: warm-ups follow one another, tasks wait for long
    picture(seen, "terminal-explain", shown[0])
    picture(seen, "terminal-status", shown[1])


def of_run(seen: Browser, job: Job) -> None:
    """Take the picture of the run's terminal at its most telling moment."""
    if not job.screen:
        raise RuntimeError(
            "the run's terminal never showed a loss or copies that catch up, with the count of batches"
        )
    picture(seen, "terminal-run", job.screen)


def doctor(seen: Browser, job: Job) -> None:
    """Take the picture of `doctor` on the file of docs/doctor.md."""
    (job.folder / "in").mkdir(exist_ok=True)  # its input
    (job.folder / "clicks.yaml").write_text(blocks("docs/doctor.md", "yaml clicks.yaml")[0])
    picture(seen, "terminal-doctor", job.command("doctor", "clicks.yaml"))
