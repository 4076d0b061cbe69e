"""The facts of a checkpoint and of this host, as the doctor gathers them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import yaml

from taskplace.cli.doctor import file_systems, gather
from taskplace.doctor import Facts, diagnose
from tests.support.operators import run, stream
from tests.support.placed_without_spark import World

#: As `tests.support.word_counts.counts`, whose checkpoint is looked at.
WORDS = {
    "application": {"id": "t"},
    "topology": {
        "sources": {"in": {"key": "k", "partitions": 2}},
        "nodes": {
            "n": {"process": "in", "processor": "count", "options": {"by": {"k": "string"}}},
            "n-out": {"sink": "n"},
        },
    },
    "input": {"in": {"format": "parquet", "path": "in", "schema": "k string"}},
    "output": {"n-out": {"path": "out"}},
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.yaml").write_text(yaml.safe_dump(WORDS))
    return World(tmp_path, monkeypatch)


def looked(path: Path, *overrides: str) -> dict[str, str]:
    """Return what the rules about the checkpoint find, by rule."""
    facts = gather("words.yaml", overrides, checkpoint=str(path))
    return {finding.rule: finding.found for finding in diagnose(facts).findings}


def test_a_checkpoint_that_the_file_can_continue(world: World) -> None:
    placed = stream(world)
    run(world, placed, 1)
    placed.close()
    facts = gather("words.yaml", checkpoint=str(placed.checkpoint))
    assert facts.checkpoint is not None
    assert (facts.checkpoint.driver, facts.checkpoint.damaged, facts.checkpoint.refused) == ("", (), ())
    assert "driver-runs" not in looked(placed.checkpoint)


def test_a_running_driver_is_found(world: World) -> None:
    placed = stream(world)
    placed._runner.operations.turn()
    assert "driver 1 (app-1" in looked(placed.checkpoint)["driver-runs"]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("topology.sources.in.partitions=3", "2"),
        ("topology.nodes.n.options.by={k: binary}", "store 'n' has other columns"),
        ("input.in.schema=k int", "the key of topic 'in' had the types string, found int"),
    ],
)
def test_a_checkpoint_that_the_file_cannot_continue(world: World, override: str, says: str) -> None:
    placed = stream(world)
    placed.journal.bind_keys({"in": ["string"]})  # as the data frame of the source does
    run(world, placed, 1)
    placed.close()
    found = looked(placed.checkpoint, override)
    assert says in found["checkpoint-of-another-application"]


def test_damage_is_found(world: World) -> None:
    placed = stream(world)
    placed.close()
    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert "missing" in looked(placed.checkpoint)["checkpoint-damaged"]


def test_the_applications_own_checkpoint_is_named(world: World) -> None:
    placed = stream(world)
    placed.close()
    facts = gather("words.yaml", [f"checkpoint.dir={placed.checkpoint}"])
    assert facts.checkpoint is None
    assert facts.unknown["checkpoint"].endswith(f"such as {placed.checkpoint})")


def test_the_file_systems_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text("/dev/a / ext4 rw 0 0\nhost:/x /mnt/my\\040share nfs4 rw 0 0\n")
    facts = Facts(settings=None, spark=None, file_systems=file_systems(tmp_path / "mounts"))  # type: ignore[arg-type]
    assert facts.file_system(Path("/mnt/my share/state")) == "nfs4"
    assert facts.file_system(Path("/data")) == "ext4"
    assert file_systems(tmp_path / "none") == {}
