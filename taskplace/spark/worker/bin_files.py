"""The files that the attempts of one bin write together: the changelog segment, and a boundary file for each topic."""

from __future__ import annotations

import uuid
from functools import cached_property
from pathlib import Path

from taskplace.spark.checkpoint.files import SectionFile, file_name
from taskplace.spark.messages import Setting, batch_dir
from taskplace.spark.worker.bin_context import segment


class BinFiles:
    """The shared files of one bin. They are made when the first attempt writes to them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._boundaries: dict[str, SectionFile] = {}

    @property
    def checkpoint(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self._setting.checkpoint)

    @cached_property
    def segment(self) -> SectionFile:
        """The file for changes. It is synced before they are reported."""
        return segment(self.checkpoint, self._setting.batch, self._setting.epoch)

    def boundary(self, topic: str) -> SectionFile:
        """Return the file for rows to an internal topic. It needs no sync: only this batch reads it."""
        if topic not in self._boundaries:
            name = f"{batch_dir(self._setting.batch)}/topics/{file_name(topic)}/{uuid.uuid4().hex}.arrow"
            self._boundaries[topic] = SectionFile(self.checkpoint, name)
        return self._boundaries[topic]

    def flush(self) -> None:
        """Make the boundary files visible to other hosts, before reports name their sections."""
        for file in self._boundaries.values():
            file.flush()

    def to_sync(self) -> list[SectionFile]:
        """Return the files to which attempts have written what must survive a crash of the host."""
        return [self.segment] if "segment" in self.__dict__ else []
