"""Checks, before anything starts, what the section `report` of a configuration asks for."""

from __future__ import annotations

from taskplace.errors import InputError
from taskplace.record.html.page import check_page
from taskplace.record.http_server import check_free
from taskplace.spec.application import ReportSettings


def check_report(settings: ReportSettings) -> None:
    """Check that pages and lines can be written, and addresses used. Errors: `InputError` with the key."""
    for key, path in (("report.html", settings.html), ("report.events", settings.events)):
        if path == "-":  # the progress of the run is there
            hint = "`--output json` prints the events on standard output; ./- is a file of this name"
            raise InputError(key, found="-", expected="the path of a file", hint=hint)
    if settings.html is not None:
        check_page(settings.html, "report.html")
    if settings.events is not None:
        check_page(settings.events, "report.events")
    if settings.ui_port is not None:
        check_free("report.ui.port", port=settings.ui_port, host=settings.ui_host)
