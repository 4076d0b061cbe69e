"""Targets of sinks. A target gets a batch's rows after the commit, and maybe the same batch again after a crash.

A target is any object with `publish(spark, batch_id, files)`, which must be idempotent by batch id.
`taskplace.spark.targets` declares what else a target may have.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from taskplace.errors import CheckpointError, InputError
from taskplace.model.callables import check_function
from taskplace.spark.checkpoint.files import (
    create_exclusively,
    lasting_directory,
    link,
    sync_directory,
    write_file,
)
from taskplace.spark.checkpoint.manifests import number_of
from taskplace.spark.codec import read_file
from taskplace.spark.state.directories import check_commits
from taskplace.spark.targets import Commit
from taskplace.spark.targets import SinkTarget as SinkTarget
from taskplace.spark.targets import Target as Target
from taskplace.spark.worker.schemas import left_out
from taskplace.spec.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: The file with the nonce of a batch's manifest, in the batch's directory.
COMMIT = "_commit"
#: The directory of a batch.
_BATCH = re.compile(r"batch_id=\d+")


class ParquetSink(SinkTarget):
    """Writes Parquet, one directory per batch: `<path>/batch_id=12/`. A batch that already exists is left unchanged.

        stats.sink("out", target=ParquetSink("/data/stats"))
        spark.read.parquet("/data/stats")  # all batches, with the column batch_id

    With it the output is exactly once: no batch is missing, none is there twice.

    The directory appears by a rename, complete or not at all, and survives a crash of the host. Once the next batch is
    published, a batch is never published again. Its files may be compacted, as long as the rows stay the same. If two
    drivers publish the same batch, each stages it separately and exactly one wins. A batch without rows has no
    directory. Files get the usual permissions of new files.

    The file `_commit` in a directory names the commit that it belongs to; readers of Parquet ignore it. The directory
    of another commit is refused: that of a batch which the checkpoint no longer has, because a backup was restored, or
    one of another program.

    The output belongs to one checkpoint, because batch ids are the checkpoint's. The file `.checkpoint` in it names the
    checkpoint. Errors: `InputError` for a path outside this host's file systems; `CheckpointError` for the output of
    another checkpoint, whose batches would be taken for this one's, and for a file beside the batches, which a reader
    would take for output. Hidden files (`.x`, `_x`) are ignored, as by Spark. A task refuses rows with a column
    `batch_id`, in upper or lower case: readers of the directory would see the batch's id instead of the column.
    """

    #: Columns that rows may not have.
    reserved = ("batch_id",)

    def __init__(self, path: str | Path) -> None:
        expected = "a directory, or a file:// URI, of this host"
        if not isinstance(path, str | Path):
            raise InputError("ParquetSink.path", found=path, expected=expected)
        self.path = local_path(path, "ParquetSink.path", expected=expected)

    @property
    def directory(self) -> Path:
        """Where the batches lie: `path`."""
        return self.path

    def probe(self) -> None:
        """Test the file system operations that publishing uses. Leaves nothing behind. Errors: `InputError` with the
        path.
        """
        check_commits(self.path, "ParquetSink.path")

    def check(self, checkpoint_id: str) -> None:
        """Refuse a directory that belongs to another checkpoint, or has files beside the batches. Changes nothing."""
        owner = self._owner()
        if owner not in ("", checkpoint_id) or (not owner and any(self.path.glob("batch_id=*"))):
            raise CheckpointError(
                f"{self.path}: the directory has output of {'another checkpoint' if owner else 'another program'}; "
                "set another directory, or remove this one"
            )
        if (foreign := self._foreign()) is not None:
            raise CheckpointError(
                f"{foreign}: found in the directory of a ParquetSink, where readers would take it for output; move it "
                f"out of {self.path}"
            )

    def _foreign(self) -> Path | None:
        """Return a file beside the batches that a reader of the directory would read; None without one."""
        try:
            beside = sorted(path for path in self.path.iterdir() if path.name[0] not in "._")
        except (FileNotFoundError, NotADirectoryError):
            return None
        others = (path for path in beside if not (path.is_dir() and _BATCH.fullmatch(path.name)))
        files = (file for path in others for file in (path, *path.rglob("*")))
        return next((file for file in files if file.name[0] not in "._" and not file.is_dir()), None)

    def bind(self, checkpoint_id: str) -> None:
        """Bind the directory to a checkpoint. Errors: as for `check`."""
        self.check(checkpoint_id)
        if not self._owner():
            lasting_directory(self.path)
            self._remove_an_empty_mark()
            with suppress(FileExistsError):
                create_exclusively(self._mark, checkpoint_id.encode())
            self.check(checkpoint_id)  # if two drivers race, exactly one wins

    def _remove_an_empty_mark(self) -> None:
        """Remove an empty marker left by a crash. If another checkpoint wrote it meanwhile, put it back."""
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
        """Return the id of the checkpoint that the directory belongs to; "" if none."""
        try:
            return read_file(self._mark).decode(errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except ValueError as error:
            raise CheckpointError(
                f"{self._mark}: {error}, expected the id of the checkpoint that the output belongs to; remove it, or "
                "set another directory"
            ) from None

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Copy the staged files into the batch's directory.

        Errors: `CheckpointError` if the batch exists with another number of rows, or from another commit.
        """
        self._publish(batch_id, files, "")

    def publish_commit(self, commit: Commit) -> None:
        """Copy the staged files into the batch's directory. Errors: as for `publish`."""
        self._publish(commit.batch_id, commit.files, commit.nonce)

    def _publish(self, batch_id: int, files: Sequence[Path], nonce: str) -> None:
        final = self.path / f"batch_id={batch_id}"
        if os.path.lexists(final):
            found, rows = _found(final, nonce if files else ""), _rows(files)
            if found != f"{rows} rows":
                raise CheckpointError(
                    f"{final}: found {found}, expected the {rows} committed rows; it belongs to a batch that the "
                    "checkpoint no longer has, for example after a backup was restored, or to another program; remove "
                    "this directory and those of later batches, and start again"
                )
            sync_directory(self.path)  # the driver that created it may have been killed before the sync
            return
        if not files:
            return
        lasting_directory(self.path)
        for old in self.path.glob(".batch_id=*.*"):
            left = number_of(old.name.split(".")[1].removeprefix("batch_id="))
            if left is not None and left < batch_id:  # by a driver that was killed
                shutil.rmtree(old, ignore_errors=True)
        staging = self.path / f".batch_id={batch_id}.{uuid.uuid4().hex}"
        staging.mkdir(exist_ok=True)  # a fresh UUID: if it exists, our mkdir succeeded, its reply was lost
        for i, file in enumerate(files):
            _link_or_copy(file, staging / f"part-{i:05d}.parquet")
        if nonce:
            write_file(staging / COMMIT, nonce.encode(), sync=True, mode=0o666)
        sync_directory(staging)
        try:
            staging.rename(final)
        except OSError as error:
            lost_reply = not staging.exists() and final.exists()
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) and not lost_reply:
                raise
            shutil.rmtree(staging, ignore_errors=True)  # another driver was first
        sync_directory(self.path)


class ForeachBatch(SinkTarget):
    """Calls `function(df, batch_id)`, as Spark's own foreachBatch does. The function must be idempotent by batch id.

        def upsert(df, batch_id):
            df.createOrReplaceTempView("changes")
            df.sparkSession.sql("MERGE INTO stats USING changes ON ...")

        stats.sink("out", target=ForeachBatch(upsert))

    Errors: `InputError` for an object that cannot be called.

    A column that has only had nulls, and whose type is not declared, has the type void. An error of the function ends
    the query. The batch stays committed, and is published first when the query is started again.
    """

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        check_function(function, "ForeachBatch.function", arguments=["df", "batch_id"])
        self._function = function

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Call the function with the batch's rows. A batch without rows causes no call."""
        if files:
            df = spark.read.parquet(*map(str, files))
            if untyped := list(left_out(pq.read_metadata(files[0]).metadata)):
                df = _with_nulls(df, untyped)
            self._function(df, batch_id)


def _with_nulls(df: DataFrame, columns: Iterable[tuple[int, str]]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by

    selected = [F.col("`" + name.replace("`", "``") + "`") for name in df.columns]
    for place, name in columns:
        selected.insert(place, F.lit(None).alias(name))
    return df.select(selected)


def _found(batch: Path, nonce: str) -> str:
    """Return what a batch's directory has: "10 rows" of the commit with this nonce; of any, without one."""
    try:
        if nonce and read_file(batch / COMMIT).decode() != nonce:
            return "the rows of another commit"
        return f"{_rows(batch.glob('*.parquet'))} rows"
    except (OSError, ValueError) as error:
        return f"no rows of this commit ({type(error).__name__})"


def _rows(files: Iterable[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        link(source, target)
    except OSError:  # another file system
        write_file(target, source.read_bytes(), sync=True, mode=0o666)
