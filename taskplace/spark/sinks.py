"""Where results go. A sink gets a batch's rows after the commit, and may get the same batch again after a crash.

A target is any object with `publish(spark, batch_id, files)`; it has to be idempotent by batch id. A target with
`check(checkpoint_id)` is asked before anything starts whether it takes that checkpoint's output, one with `probe()` is
asked to try whether it can write at all, and one with `bind(checkpoint_id)` is told at the start. A target's `reserved`
are the names, in lower case, of columns that its rows may not have.
"""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow.parquet as pq

from taskplace.errors import CheckpointError, InputError
from taskplace.paths import local_path
from taskplace.spark.state.directories import check_commits
from taskplace.spark.state.files import (
    create_exclusively,
    lasting_directory,
    link,
    sync_directory,
    write_file,
)
from taskplace.spark.worker.schemas import left_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Target(Protocol):
    """The form of a sink's target."""

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Make the rows of `files` (Parquet) the output of `batch_id`, also when that was done before."""
        ...


class ParquetSink:
    """Parquet, one directory a batch: `<path>/batch_id=12/`. A batch that is there already is left as it is.

    The directory appears by a rename, whole or not at all, and survives a crash of the host: a batch is not
    published again once the next one is. Its files may be compacted, as long as the rows stay. Two drivers that
    publish one batch stage it apart, and one of them wins. A batch without rows has no directory. Files have the
    permissions that new files get.

    The output belongs to one checkpoint, whose batch ids it has; `.checkpoint` in it names that.
    Errors: `InputError` for a path that is not of this host's file systems; `CheckpointError` for the output of another
    checkpoint: its batches would pass for this one's. A task refuses rows with a column `batch_id`, in whatever case:
    readers of the directory would have the batch's id in its place.
    """

    #: Columns that rows may not have.
    reserved = ("batch_id",)

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise InputError("ParquetSink.path", found=path, expected="a directory")
        self.path = local_path(
            path, "ParquetSink.path", expected="a directory, or a file:// URI, of this host"
        )

    def probe(self) -> None:
        """Try what publishing needs of the file system; leaves nothing behind. Errors: `InputError` naming the path."""
        check_commits(self.path, "ParquetSink.path")

    def check(self, checkpoint_id: str) -> None:
        """Refuse the directory if it is another checkpoint's. Changes nothing."""
        found = self._owner()
        if found not in ("", checkpoint_id) or (not found and any(self.path.glob("batch_id=*"))):
            raise CheckpointError(
                f"{self.path}: the directory has output of {'another checkpoint' if found else 'another program'}; "
                "set another directory, or remove this one"
            )

    def bind(self, checkpoint_id: str) -> None:
        """Take the directory for a checkpoint, or refuse."""
        self.check(checkpoint_id)
        if not self._owner():
            lasting_directory(self.path)
            self._remove_an_empty_mark()
            with suppress(FileExistsError):
                create_exclusively(self._mark, checkpoint_id.encode())
            self.check(checkpoint_id)  # of two that come at once, one has it

    def _remove_an_empty_mark(self) -> None:
        """Remove what a crash of the host has left; not one that another checkpoint has made just now."""
        aside = self.path / f".checkpoint.{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            self._mark.rename(aside)
            if aside.stat().st_size:
                with suppress(FileExistsError):
                    link(aside, self._mark)
            aside.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return self.path / ".checkpoint"

    def _owner(self) -> str:
        """Return the id of the checkpoint that the directory belongs to; "" while it belongs to none."""
        return self._mark.read_text().strip() if self._mark.exists() else ""

    def holds(self, batch_id: int) -> bool:
        """Return whether a batch is there already."""
        return (self.path / f"batch_id={batch_id}").exists()

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Copy the staged files into the batch's directory.

        Errors: `CheckpointError` when it is there with another number of rows: the checkpoint was set back since.
        """
        final = self.path / f"batch_id={batch_id}"
        if final.exists():
            if (found := _rows(final.glob("*.parquet"))) != (rows := _rows(files)):
                raise CheckpointError(
                    f"{final}: found {found} rows, expected the {rows} committed rows; the output belongs to a batch "
                    "that the checkpoint no longer has, for example after a backup was restored: remove this "
                    "directory and those of later batches"
                )
            sync_directory(self.path)  # who made it may have been killed before that
            return
        if not files:
            return
        lasting_directory(self.path)
        for old in self.path.glob(".batch_id=*.*"):
            if int(old.name.split("=")[1].split(".")[0]) < batch_id:  # of one that died while it published
                shutil.rmtree(old, ignore_errors=True)
        staging = self.path / f".batch_id={batch_id}.{uuid.uuid4().hex}"
        staging.mkdir(exist_ok=True)  # of a name of its own: if it is there, the reply was lost
        for i, file in enumerate(files):
            _link_or_copy(file, staging / f"part-{i:05d}.parquet")
        sync_directory(staging)
        try:
            staging.rename(final)
        except OSError as error:
            lost_reply = not staging.exists() and final.exists()
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not lost_reply:
                raise
            shutil.rmtree(staging, ignore_errors=True)  # another driver was first
        sync_directory(self.path)


class ForeachBatch:
    """Calls `function(df, batch_id)`, as Spark's own foreachBatch does; it has to be idempotent by batch id.

    A column of nothing but nulls so far, whose type nobody has declared, is of type void. What the function raises ends
    the query; the batch stays to be published, and is published first when the query is started again.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        if not callable(function):
            raise InputError("ForeachBatch.function", found=function, expected="a function of (df, batch_id)")
        self._function = function

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Call the function with the batch's rows; not for a batch without rows."""
        if files:
            df = spark.read.parquet(*map(str, files))
            if untyped := list(left_out(pq.read_metadata(files[0]).metadata)):
                df = _with_nulls(df, untyped)
            self._function(df, batch_id)


def _with_nulls(df: DataFrame, columns: Iterable[tuple[int, str]]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by

    found = [F.col("`" + name.replace("`", "``") + "`") for name in df.columns]
    for place, name in columns:
        found.insert(place, F.lit(None).alias(name))
    return df.select(found)


def _rows(files: Iterable[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        link(source, target)
    except OSError:  # another file system
        write_file(target, source.read_bytes(), sync=True, mode=0o666)
