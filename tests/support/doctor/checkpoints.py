"""Cases of the rules about the start and the checkpoint."""

from __future__ import annotations

from pathlib import Path

from tests.support.doctor.cases import ADVICE, Cases, fires, quiet, with_checkpoint

CASES: Cases = {
    "start-refused": (
        fires(
            "runtime.weights.9_9",
            says="an unknown task",
            refused="runtime.weights.9_9: found an unknown task",
        ),
        fires(
            "input.clicks.kafka.servers_env",
            refused="input.clicks.kafka.servers_env: found 'BROKERS', expected an environment variable",
        ),
    ),
    "driver-runs": (
        fires(
            "checkpoint.dir", says="driver 3", **with_checkpoint(driver="driver 3 wrote its status just now")
        ),
    ),
    "checkpoint-damaged": (
        fires(
            "/shared/shop/checkpoint",
            says="missing, and 1 more files",
            **with_checkpoint(damaged=("snapshot s: missing", "b")),
        ),
    ),
    "checkpoint-of-another-application": (
        fires(
            "checkpoint.dir",
            says="other columns",
            ends=False,
            **with_checkpoint(refused=("store 'seen' has other columns", "store 'n' keeps other values")),
        ),
    ),
    "checkpoint-elsewhere": (
        fires(
            "checkpoint.dir",
            says="/backup",
            severity=ADVICE,
            **with_checkpoint(path=Path("/shared/backup/checkpoint")),
        ),
        quiet(
            **with_checkpoint(
                path=Path("/shared/backup/checkpoint"), refused=("store 'seen' has other columns",)
            )
        ),
    ),
}
