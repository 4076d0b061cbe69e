"""What attempts have left in a checkpoint: their reports, and sections of the changelog."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from taskplace.spark.checkpoint.files import open_sealed, open_section
from taskplace.spark.messages import Change, Report, ReportGroup, Snapshot, reports_dir


def decoded(answers: Iterable[bytes]) -> list[Report]:
    """Return the reports of the groups that a job has answered with."""
    return [report for answer in answers for report in ReportGroup.decode(answer).reports]


def check_part(checkpoint: Path, part: Change | Snapshot) -> None:
    """Read a part of a history. Errors: `CheckpointError` if it is missing or damaged."""
    path = checkpoint / part.file
    if isinstance(part, Change):
        open_section(path, part.start, part.size, part.checksum).close()
    else:
        open_sealed(path, part.size, part.checksum).close()


def damage(checkpoint: Path, change: Change) -> None:
    """Change a byte of a section of the changelog."""
    with (checkpoint / change.file).open("r+b") as file:
        file.seek(change.start + change.size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def reports_in(checkpoint: Path, batch: int, subtopology: int) -> list[Report]:
    """Return the reports of a stage, those of zombies included, in the order of their files."""
    folder = checkpoint / reports_dir(batch, subtopology)
    return decoded(path.read_bytes() for path in sorted(folder.glob("*.json")))
