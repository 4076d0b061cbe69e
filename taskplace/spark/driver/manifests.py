"""The files of the manifests: lists and reads them, and publishes the manifest of a batch exactly once.

    manifests/0000000012.json       batch 12 is committed; never overwritten

A manifest is written completely and then made visible by an exclusive create (a hard link). If two drivers publish the
same batch, one loses and stops (`Fenced`). A manifest names the first batch whose manifest is still needed. Manifests
with lower numbers are ignored: a driver that was stopped during its commit may create one long after other drivers have
gone further.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.checkpoint.files import create_exclusively, sync_directory
from taskplace.spark.checkpoint.journal import Epochs
from taskplace.spark.checkpoint.manifests import numbers, path_of, read_manifest
from taskplace.spark.codec import damaged, read_file, seal, sealed
from taskplace.spark.messages import Manifest

#: How often a driver reads again what other drivers change meanwhile.
OPENINGS = 20


def checksum(root: Path, batch: int) -> str:
    """Return the checksum of a batch's manifest. Errors: `CheckpointError` for a missing or damaged manifest."""
    path = path_of(root, batch)
    try:
        return seal(read_file(path))
    except (OSError, ValueError) as error:
        raise damaged(path, "manifest", error) from error


class Manifests:
    """The manifests of one checkpoint, as one driver reads and publishes them.

    Errors: `CheckpointError` for missing or damaged manifests.
    """

    def __init__(self, root: Path, epochs: Epochs) -> None:
        self.folder = path_of(root, 0).parent
        self._root, self._epochs = root, epochs
        self._tried = -1  # the last batch whose manifest this driver tried to create

    def numbers(self) -> list[int]:
        """Return the batches that have a manifest, in order, including manifests that are no longer needed."""
        return numbers(self._root)

    def path(self, batch: int) -> Path:
        """Return the file of a batch's manifest."""
        return path_of(self._root, batch)

    def read(self, batch: int) -> Manifest:
        """Return the manifest of a batch."""
        return read_manifest(self.path(batch))

    def needed(self) -> list[Manifest]:
        """Return the manifests that are still needed, in order; empty before the first commit.

        If another driver prunes listed manifests meanwhile, they are listed and read again.
        """
        for _ in range(OPENINGS - 1):
            with suppress(FileNotFoundError):
                return self._needed()
        return self._needed()

    def _needed(self) -> list[Manifest]:
        numbers = self.numbers()
        if not numbers:
            return []
        last = self.read(numbers[-1])
        needed = [number for number in numbers if number >= last.needs]
        for number, expected in zip(needed, itertools.count(last.needs)):
            if number != expected:
                if numbers != self.numbers():
                    raise FileNotFoundError(number)
                raise CheckpointError(f"{self.path(number)}: the manifest of batch {expected} is missing")
        return [*(self.read(number) for number in needed[:-1]), last]

    def publish(self, manifest: Manifest) -> None:
        """Create the file of a manifest: the commit point.

        Errors: `Fenced` if another driver has published this batch; `CheckpointError` if the disk hid that this driver
        has, with other contents.
        """
        path = self.path(manifest.batch)
        self._sync_above(manifest)
        tried, self._tried = self._tried == manifest.batch, manifest.batch
        data = sealed(manifest)
        try:
            create_exclusively(path, data)
        except FileExistsError:
            if tried and path.read_bytes() == data:
                # An error of the disk hid the success of the first try, and may have prevented its sync.
                sync_directory(self.folder)
            elif tried:
                raise CheckpointError(
                    f"{path}: this driver committed the batch, but a disk error hid the result; "
                    "restart the application, it continues after this batch"
                ) from None
            else:
                raise Fenced(
                    f"{path}: another driver has committed this batch; this driver stops. If no other driver runs, "
                    "start the application again: it continues after this batch"
                ) from None
        if self._epochs.newest() != manifest.epoch and self._is_over(manifest.batch):
            path.unlink(missing_ok=True)  # no driver reads it, and the next pruning would remove it
            raise Fenced(f"{path}: other drivers have committed this batch and later ones; this driver stops")

    def _sync_above(self, manifest: Manifest) -> None:
        """Sync the directories above the files that a manifest names, so that they survive a crash of the host.

        The writer of a file syncs the file and its directory. The directories above may have been made for files that
        need no sync, or by a process that was killed before it synced them.
        """
        named = [change.file for change in manifest.changes.values()]
        named += [snapshot.file for kept in manifest.snapshots.values() for snapshot in kept]
        named += [staged.file for files in manifest.sinks.values() for staged in files]
        for folder in _above(named):
            with suppress(FileNotFoundError):  # a missing directory is an error where its files are read
                sync_directory(self._root / folder)

    def _is_over(self, batch: int) -> bool:
        """Return whether the newest manifest says that the manifest of this batch is no longer needed."""
        for _ in range(OPENINGS):
            with suppress(FileNotFoundError):
                return self.read(self.numbers()[-1]).needs > batch
        return False


def _above(files: Iterable[str]) -> list[str]:
    """Return the directories above those of the files, by relative name, and "" for the root. O(files), as text.

    >>> _above(["changelog/a.segment", "snapshots/0_1/b.arrow", "snapshots/0_2/c.arrow"])
    ['', 'snapshots']
    """
    above: set[str] = set()
    folders = {file.rpartition("/")[0] for file in files}
    while folders := {folder.rpartition("/")[0] for folder in folders if folder}:
        above |= folders
    return sorted(above)
