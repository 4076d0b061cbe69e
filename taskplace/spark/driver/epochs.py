"""Epochs: one number per driver that has taken over a checkpoint, and that driver's declaration.

    epochs/0000000003               the declaration of driver 3, sealed

The driver with the highest number is in charge. A declaration is written before its driver commits anything, and is
never changed. A manifest has the epoch of its driver, which identifies the declaration that counts.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import create_exclusively, lasting_directory
from taskplace.spark.checkpoint.manifests import DIGITS, numbered
from taskplace.spark.codec import damaged, read_file, sealed, unsealed
from taskplace.spark.messages import Declaration, epoch_file


class Epochs:
    """The epochs of one checkpoint. The driver that creates the file of a number owns the number."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "epochs"

    def newest(self) -> int:
        """Return the number of the last driver that has taken over the checkpoint; 0 before the first."""
        return max(numbered(self.folder, digits=DIGITS), default=0)

    def take(self, number: int, declaration: Declaration) -> bool:
        """Take a number if it is free; return whether this call took it."""
        root = self.folder.parent
        lasting_directory(root.parent)  # may belong to others; only the checkpoint itself is private
        with suppress(FileExistsError):
            create_exclusively(self.path(number), sealed(declaration, indent=1))
            return True
        return False

    def declaration(self, number: int) -> Declaration:
        """Return the declaration of a driver. Errors: `CheckpointError` for a missing or damaged file."""
        path = self.path(number)
        try:
            found = Declaration.decode(unsealed(read_file(path)))
            if "/" in found.id:  # executors name their directory after it
                raise ValueError(f"the id {found.id!r} is no name")
            return found
        except FileNotFoundError:
            raise CheckpointError(
                f"{path}: the file is missing; it describes the topology of driver {number}, which committed the last "
                "batch: restore the file, or start a new checkpoint"
            ) from None
        except ValueError as error:
            raise damaged(path, "declaration", error) from None

    def below(self, number: int) -> list[Path]:
        """Return the files of all drivers with lower numbers."""
        return [self.path(earlier) for earlier in numbered(self.folder, digits=DIGITS) if earlier < number]

    def path(self, number: int) -> Path:
        """Return the file of a driver's declaration."""
        return self.folder.parent / epoch_file(number)
