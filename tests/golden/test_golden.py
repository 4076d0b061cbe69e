"""Checkpoints that earlier code has made are continued, with the right answers; other versions are refused.

How they were made: `make.py`. What has to come of them is in the JSON beside each, by plain Python.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import sealed, unsealed
from taskplace.spark.messages import SCHEMA
from tests.golden.formats import HERE, Golden, from_json, unpack
from tests.golden.make import go_on
from tests.golden.streams import STREAMS
from tests.support.placed_without_spark import World

CHECKPOINTS = sorted(HERE.glob("manifest-*/*.json"))
NAME, _, NOW = SCHEMA.rpartition("/")
MANIFEST = "checkpoint/manifests/{:010d}.json"


@pytest.mark.parametrize("file", CHECKPOINTS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_checkpoint_of_earlier_code_is_continued(file, tmp_path, monkeypatch):
    go_on(file, tmp_path, monkeypatch)


def test_there_are_checkpoints_of_the_version_that_is_made_now():
    """Who changes the format makes them, before: `python tests/golden/make.py`."""
    versions = {Golden.read(file).manifest for file in CHECKPOINTS}
    assert {SCHEMA} <= versions


def test_they_have_files_of_every_kind(tmp_path):
    """What is not among them would not be noticed when it can no longer be read."""
    for file in CHECKPOINTS:
        unpack(file.with_suffix(".tar.xz"), tmp_path / file.parent.name / file.stem)
    for folder in tmp_path.iterdir():
        found = {
            path.relative_to(checkpoint).parts[0]
            for checkpoint in folder.glob("*/checkpoint")
            for path in checkpoint.rglob("*.*")
        }
        assert found >= {"manifests", "changelog", "snapshots", "batches"}
        for kind in ("attempts", "topics", "sinks"):
            assert list(folder.glob(f"*/checkpoint/batches/*/{kind}"))
        manifests = [
            json.loads(unsealed(path.read_bytes())) for path in folder.glob("*/checkpoint/manifests/*.json")
        ]
        assert any(manifest["histories"] for manifest in manifests)
        assert any(manifest["watermark"] for manifest in manifests)
        declared = [json.loads(unsealed(path.read_bytes())) for path in folder.glob("*/checkpoint/epochs/*")]
        assert any(1 in found["incarnations"].values() for found in declared)


# ------------------------------------------------------------------------- versions


@pytest.fixture
def words(tmp_path) -> tuple[Golden, Path]:
    """A checkpoint, and its last manifest."""
    file = HERE / f"manifest-{NOW}" / "stores.json"
    unpack(file.with_suffix(".tar.xz"), tmp_path)
    return Golden.read(file), tmp_path / MANIFEST.format(Golden.read(file).last)


def make_it(manifest: Path, schema: object) -> None:
    """Have a manifest say that it is of another version."""
    manifest.write_bytes(sealed({**json.loads(unsealed(manifest.read_bytes())), "schema": schema}))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            f"{NAME}/{int(NOW) + 1}",
            "a newer taskplace wrote it: continue with that version of taskplace, or start a new",
        ),
        (f"{NAME}/999", "a newer taskplace wrote it"),
        (
            f"{NAME}/{int(NOW) - 1}",
            "no release continues it: continue with that version of taskplace, or start",
        ),
        (f"{NAME}/0", "no release continues it"),
        (f"{NAME}/-1", "this is not a checkpoint of taskplace"),
        (f"{NAME}/x", "this is not a checkpoint of taskplace"),
        ("another/5", "this is not a checkpoint of taskplace: set the right directory, or start a new"),
        (None, "this is not a checkpoint of taskplace"),
        (5, "this is not a checkpoint of taskplace"),
    ],
)
def test_another_version_is_refused_with_what_was_found_what_is_read_and_a_way_out(
    words, tmp_path, monkeypatch, schema, message
):
    _, manifest = words
    make_it(manifest, schema)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    world = World(tmp_path, monkeypatch)
    expected = (
        f"{re.escape(str(manifest))}: found .*{re.escape(repr(schema))}, expected '{SCHEMA}'; .*{message}"
    )
    with pytest.raises(CheckpointError, match=expected):
        world.open(STREAMS["stores"].pipeline(tmp_path, 2).topology)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_driver_does_not_take_over_from_a_newer_version_that_has_come_meanwhile(
    words, tmp_path, monkeypatch
):
    found, manifest = words
    world = World(tmp_path, monkeypatch)
    placed = world.open(STREAMS["stores"].pipeline(tmp_path, 2).topology)
    make_it(manifest, f"{NAME}/{int(NOW) + 1}")
    with pytest.raises(CheckpointError, match="a newer taskplace wrote it"):
        world.batch(placed, found.first, **{t: from_json(rows) for t, rows in found.batches[0].items()})
    assert [path.name for path in (tmp_path / "checkpoint" / "epochs").iterdir()] == ["0000000003"]


def test_a_manifest_without_a_version_is_damaged(words):
    _, manifest = words
    raw = json.loads(unsealed(manifest.read_bytes()))
    del raw["schema"]
    manifest.write_bytes(sealed(raw))
    with pytest.raises(CheckpointError, match="damaged manifest"):
        Journal(manifest.parents[1], {}, take_over=False)
