"""The keys of an application that have no effect, with the reason."""

from __future__ import annotations

from collections.abc import Collection

from taskplace.settings import Settings
from taskplace.spark.session_conf import LOCALITY_WAIT


def ignored(settings: Settings, written: Collection[str]) -> dict[str, str]:
    """Return the reason by the path of the key.

    `written`: the paths of the keys that are set: a default is not ignored
    """
    report, conf = settings.report, settings.spark.conf
    reasons = {
        "report.log.tasks": report.log is None
        and report.log_tasks
        and "without report.log there are no log lines",
        "report.metrics.host": report.metrics_port is None
        and "metrics are only served on a report.metrics.port",
        "runtime.locality.wait.ms": LOCALITY_WAIT in conf and f"spark.conf has {LOCALITY_WAIT}",
        "spark.master": "spark.master" in conf and "spark.conf has spark.master",
        "spark.app.name": "spark.app.name" in conf and "spark.conf has spark.app.name",
    }
    return {path: why for path, why in reasons.items() if why and path in written}
