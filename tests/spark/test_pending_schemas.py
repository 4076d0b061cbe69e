"""Batches that an older version has committed and not published are published all the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from taskplace.spark.checkpoint.manifests import read_manifest

from taskplace.errors import CheckpointError
from taskplace.spark.codec import checksum_of, sealed
from taskplace.spark.messages import StagedFile
from tests.support.placed_without_spark import World
from tests.support.sink_streams import Stream, table

pytestmark = pytest.mark.usefixtures("frames_with_a_session")


class Broken:
    """A target that takes nothing: a batch stays committed, and pending."""

    def publish(self, spark, batch_id, files):
        raise OSError("no space")


def older(world: World, *sends: pa.Table) -> Stream:
    """Return a stream with a pending batch as it was made before sinks had schemas: each task staged what it had."""
    stream = Stream(world, Broken())
    with pytest.raises(OSError, match="no space") as failed:
        stream.batch(*[table(n=[1]) for _ in sends])
    assert "batch 0 is committed but not published, because the target of sink 'out' failed" in str(
        failed.value.__notes__
    )
    checkpoint = world.folder / "checkpoint"
    path = checkpoint / "manifests" / f"{0:010d}.json"
    manifest = read_manifest(path)
    (staged,) = manifest.sinks["out"]
    files = []
    for number, rows in enumerate(sends):  # then each task staged a file of its own
        name = f"{staged.file.removesuffix('.parquet')}-{number}.parquet"
        pq.write_table(rows, checkpoint / name)
        data = (checkpoint / name).read_bytes()
        files.append(StagedFile(name, rows.num_rows, len(data), checksum_of(data)))
    identity = {name: value for name, value in manifest.identity.items() if name != "schemas"}
    path.write_bytes(sealed(replace(manifest, identity=identity, nonce="", sinks={"out": tuple(files)})))
    stream.target = None
    stream.number = 0
    return stream


def again(stream: Stream, **sink: Any) -> None:
    """Start anew, which publishes the last batch once more."""
    stream.number = 0
    stream.open(**sink)
    stream.batch()


def test_a_pending_batch_of_an_older_checkpoint_is_made_one(world):
    stream = older(
        world, table(n=([1], pa.int32()), x=pa.nulls(1)), table(x=["b"], n=[2**40]), table(n=([3], pa.int8()))
    )
    again(stream)
    assert stream.sent() == {0: [(1, None), (2**40, "b"), (3, None)]}
    again(stream)
    stream.batch(table(n=[4], x=["c"]))
    assert stream.schema == {"n": "int64", "x": "string"}


def test_a_pending_batch_whose_types_do_not_fit_is_published_as_is_declared(world):
    stream = older(world, table(n=[1]), table(n=[2.0, None]), table(n=[3]))
    for _ in range(2):
        with pytest.raises(
            CheckpointError,
            match=r"batch 0 is committed.*sink 'out', column 'n': found int64 and double.*schema=",
        ):
            again(stream)
    again(stream, schema={"n": "int64"})
    assert sorted(stream.sent()[0], key=repr) == [(1,), (2,), (3,), (None,)]
    stream.batch(table(n=[4]))


def test_a_pending_batch_can_always_be_published_as_text(world):
    stream = older(world, table(n=[2**60 + 1]), table(n=[2.5]), table(n=[[{"a": 1}]], m=["x"]))
    with pytest.raises(CheckpointError, match=r"has columns .'m'.* not in its declared schema"):
        again(stream, schema={"n": "double"})
    with pytest.raises(CheckpointError, match="'string' accepts all values"):
        again(stream, schema={"n": "double", "m": "string"})
    again(stream, schema={"n": "string", "m": "string"})
    assert sorted(stream.sent()[0]) == [(str(2**60 + 1), None), ("2.5", None), ('[{"a": 1}]', "x")]


def test_a_pending_batch_with_a_column_twice_is_published_with_both(world):
    twice = pa.table([[1], [2]], names=["x", "X"])
    stream = older(world, twice, twice)
    again(stream)
    assert stream.sent() == {0: [(1, 2), (1, 2)]}


def test_a_batch_that_was_published_already_is_left_as_it_is(world):
    stream = older(world, table(n=[1]), table(n=[2.5]))
    (world.folder / "out" / "batch_id=0").mkdir(parents=True)
    for number, values in enumerate(([1], [2.5])):
        pq.write_table(table(n=values), world.folder / "out" / "batch_id=0" / f"{number}.parquet")
    (world.folder / "out" / ".checkpoint").write_text(stream.placed.journal.declaration.id)
    again(stream)
