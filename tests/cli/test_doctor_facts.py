"""The facts of a checkpoint and of this host, as the doctor gathers them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import yaml

from taskplace.cli.doctor import gather, installed, this_host
from taskplace.doctor import diagnose
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
    assert 0 < facts.checkpoint.records <= 16
    assert facts.checkpoint.state_bytes > 0
    assert facts.checkpoint.executors == 1
    # 10,000 records are more than there are, and the stream has been stopped.
    assert "has" in looked(placed.checkpoint)["lag-covers-empty-copies"]
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


def test_limits_of_containers(tmp_path: Path) -> None:
    """The lowest limit of the group and of those above it counts; version 2 and version 1."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mounts").write_text("/dev/a / ext4 rw 0 0\nhost:/x /mnt/my\\040share nfs4 rw 0 0\n")
    (proc / "self" / "cgroup").write_text("0::/pod/container\n")
    (groups / "pod" / "container").mkdir(parents=True)
    (groups / "pod" / "container" / "memory.max").write_text("max\n")
    (groups / "pod" / "memory.max").write_text("1048576\n")
    found = this_host(proc, groups)
    assert found.memory == 1 << 20
    assert found.file_system(Path("/mnt/my share/state")) == "nfs4"
    assert found.file_system(Path("/data")) == "ext4"

    (proc / "self" / "cgroup").write_text("5:cpu:/x\n4:memory:/pod\n")
    (groups / "memory" / "pod").mkdir(parents=True)
    (groups / "memory" / "pod" / "memory.limit_in_bytes").write_text("2097152\n")
    (groups / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert this_host(proc, groups).memory == 2 << 20


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    found = this_host(tmp_path, tmp_path)
    assert found.file_systems == {}
    assert found.memory is None or found.memory > 0


def test_the_tested_ranges_are_those_of_the_package() -> None:
    by_name = {package.name: package for package in installed(steered=False)}
    assert "3.0.0" not in by_name["pandas"].tested
    assert "4.2.0" not in by_name["pyspark"].tested
    assert "4.2.0" in {p.name: p for p in installed(steered=True)}["pyspark"].tested
    assert "pytest" not in by_name
