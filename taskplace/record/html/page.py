"""Makes the page of a report: one HTML file with its data, styles and scripts, which needs no network.

The page shows what is in the report's JSON document. Its policy (Content-Security-Policy) forbids every request, so it
can be opened, stored and passed on anywhere. A live page may ask the server that it came from, and no other.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskplace.errors import InputError
from taskplace.record.html.values import Report
from taskplace.record.http_server import check_free

if TYPE_CHECKING:
    from taskplace.spec.application import ReportSettings  # which loads YAML

STYLES = ("vendor/uPlot.min.css", "static/page.css", "static/parts.css")
SCRIPTS = (
    "vendor/uPlot.iife.min.js",
    "static/basics.js",
    "static/tables.js",
    "static/charts.js",
    "static/series.js",
    "static/matrix.js",
    "static/placement.js",
    "static/sections.js",
    "static/live.js",
    "static/main.js",
)


def page(report: Report, *, live: bool = False) -> str:
    """Return the page of a report as HTML text. `live`: it asks its server for news.

    >>> from taskplace.record.html.values import State
    >>> page(Report("plan", "a < b", State("stable"), made=0.0)).startswith("<!doctype html>")
    True
    """
    template = _environment().get_template("page.html")
    return template.render(
        report=report,
        live=live,
        document=Markup(for_script(report.to_json())),
        styles=_joined(STYLES),
        scripts=_joined(SCRIPTS),
    )


def write_page(report: Report, path: str | Path) -> Path:
    """Write the page of a report as a whole, and return its path. Creates its directory.

    Errors: `InputError` for a path that cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(str(path), found="a directory", expected="a path for the page")
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text(page(report), encoding="utf-8")
        staging.replace(path)
    except OSError as error:
        with suppress(OSError):
            staging.unlink()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(str(path), found=reason, expected="a path that can be written") from None
    return path


def check_page(path: str | Path, key: str, *, replaced: bool = True) -> None:
    """Check, before the work, that a file can be written there. `key`: what asks for it, for errors.

    Makes nothing. `replaced`: a new file takes the place of one that is there, as of `write_page`, so only its
    directory has to be writable. Errors: `InputError`.
    """
    path = Path(path).absolute()
    if path.is_dir():
        raise InputError(key, found=f"{path}, a directory", expected="a path for the file")
    there = next(one for one in (path, *path.parents)[replaced:] if one.exists())  # the root is always there
    if (there != path and not there.is_dir()) or not os.access(there, os.W_OK):
        what = "a file" if there != path and there.is_file() else "read-only"
        found = f"{path}, where {there} is {what}"
        raise InputError(key, found=found, expected="a path that can be written")


def for_script(document: str) -> str:
    """Return JSON text that may stand in a script element: nothing in it ends the element.

    >>> for_script('{"why": "</script>"}')
    '{"why": "\\\\u003c/script\\\\u003e"}'
    """
    for letter in "<>&\u2028\u2029":
        document = document.replace(letter, f"\\u{ord(letter):04x}")
    return document


@cache
def _environment() -> Environment:
    loader = PackageLoader("taskplace.record.html", "templates")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@cache
def _joined(names: tuple[str, ...]) -> Markup:
    folder = resources.files("taskplace.record.html")
    return Markup("\n".join((folder / name).read_text(encoding="utf-8") for name in names))


def check_report(settings: ReportSettings) -> None:
    """Check that pages and lines can be written, and addresses used. Errors: `InputError` with the key."""
    for key, path in (("report.html", settings.html), ("report.events", settings.events)):
        if path == "-":  # the progress of the run is there
            hint = "`--output json` prints the events on standard output; ./- is a file of this name"
            raise InputError(key, found="-", expected="the path of a file", hint=hint)
    if settings.html is not None:
        check_page(settings.html, "report.html")
    if settings.events is not None:
        check_page(settings.events, "report.events", replaced=False)
    if settings.ui_port is not None:
        check_free("report.ui.port", port=settings.ui_port, host=settings.ui_host)
