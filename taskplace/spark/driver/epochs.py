"""One epoch per driver that has opened a checkpoint, and what each declared when it did.

    epochs/0000000003               driver 3: what its manifests are made with, sealed

The highest number is in charge. A declaration is written before anything is committed under it and never changed,
so that a manifest, which has its driver's epoch, says which declaration counts.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from taskplace.errors import CheckpointError
from taskplace.spark.codec import damaged, sealed, unsealed
from taskplace.spark.messages import Declaration
from taskplace.spark.state.files import create_exclusively, lasting_directory


class Epochs:
    """The epochs of one checkpoint. Whoever creates a number's file has that number."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "epochs"

    def newest(self) -> int:
        """Return the number of the last driver that has opened the checkpoint; 0 before the first."""
        return max(self._numbers(), default=0)

    def take(self, number: int, declaration: Declaration) -> bool:
        """Take a number, if nobody has it; return whether that was so."""
        root = self.folder.parent
        lasting_directory(root.parent)  # of others too; the checkpoint itself is private
        with suppress(FileExistsError):
            create_exclusively(self.path(number), sealed(declaration, indent=1))
            return True
        return False

    def declaration(self, number: int) -> Declaration:
        """Return what a driver declared. Errors: `CheckpointError` for a missing or damaged file."""
        path = self.path(number)
        try:
            return Declaration.decode(unsealed(path.read_bytes()))
        except FileNotFoundError:
            raise CheckpointError(
                f"{path}: the file is missing, and the last manifest was made by driver {number}; without it nobody "
                "can say whether the state fits: restore it, or start a new checkpoint"
            ) from None
        except ValueError as error:
            raise damaged(path, "declaration", error) from None

    def below(self, number: int) -> list[Path]:
        """Return the files of the drivers before one."""
        return [self.path(found) for found in self._numbers() if found < number]

    def _numbers(self) -> list[int]:
        try:
            return [int(path.name) for path in self.folder.iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return []

    def path(self, number: int) -> Path:
        """Return the file of a driver's declaration."""
        return self.folder / f"{number:010d}"
