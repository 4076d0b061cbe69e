"""The two checkpoints and the sources are judged by `start`, before Spark's query runs; with a real query."""

from __future__ import annotations

import shutil

import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from topology import Topology

pytestmark = pytest.mark.spark


def opened(cluster, folder, *sources: str) -> Placed:
    topo = Topology("t")
    for name in sources:
        topo.source(name, key="k", partitions=2).process(
            Count(f"n-{name}", by={"k": "string"}), name=name + "-n"
        )
    return Placed(cluster, topo, checkpoint=folder / "checkpoint", state_dir=folder / "state")


def frames(cluster, folder, *sources: str) -> dict:
    return {
        name: cluster.readStream.schema("k string, at bigint").parquet(str(folder / name)) for name in sources
    }


def test_a_start_says_what_is_missing_beside_the_checkpoint(cluster, tmp_path):
    for name in "abc":
        cluster.createDataFrame([("x", 1)], "k string, at bigint").write.parquet(str(tmp_path / name))
    placed = opened(cluster, tmp_path, "a", "b")
    with pytest.raises(InputError, match=r"^sources\.b: found 'a data frame that does not stream'"):
        placed.start({**frames(cluster, tmp_path, "a"), "b": cluster.read.parquet(str(tmp_path / "b"))})
    query = placed.start(frames(cluster, tmp_path, "a", "b"), trigger={"availableNow": True})
    query.awaitTermination()
    assert placed.journal.last_batch == 0
    placed.close()

    for sources, message in (
        (("a", "b", "c"), "'c' is new"),
        (("a",), "'b' is missing"),
        (("b", "a"), "another order"),
    ):
        with pytest.raises(CheckpointError, match=message):
            opened(cluster, tmp_path, *sources)

    checkpoint, aside = tmp_path / "checkpoint", tmp_path / "aside"
    for half, message in (
        ("spark", "found placed state up to batch 0 .*but no Spark checkpoint"),
        ("manifests", "found Spark's checkpoint .*at batch 1, but no committed batch"),
    ):
        (checkpoint / half).rename(aside)
        placed = opened(cluster, tmp_path, "a", "b")
        with pytest.raises(CheckpointError, match=message) as caught:
            placed.start(frames(cluster, tmp_path, "a", "b"))
        assert "java" not in str(caught.value)
        placed.close()
        shutil.rmtree(checkpoint / half, ignore_errors=True)
        aside.rename(checkpoint / half)

    cluster.createDataFrame([("y", 1)], "k string, at bigint").write.mode("append").parquet(
        str(tmp_path / "a")
    )
    placed = opened(cluster, tmp_path, "a", "b")
    query = placed.start(frames(cluster, tmp_path, "a", "b"), trigger={"availableNow": True})
    query.awaitTermination()
    assert placed.store("n-a").get({"k": "y"}) == {"count": 1}
    assert placed.journal.last_batch == 1
