"""A checkpoint is verified: all its bytes, and the assignment of its last commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from taskplace.spark.checkpoint.manifests import read_manifest
from taskplace.spark.codec import sealed
from taskplace.spark.inspection.checkpoint import CHECKED, verify_checkpoint
from tests.support.operators import run, stream

ROLES = {"active": [], "standby": [], "warmup": []}


@pytest.fixture
def checkpoint(world) -> Path:
    """A checkpoint of two tasks on two executors, with a standby each."""
    placed = stream(world, config={"num.standby.replicas": 1})
    world.come()
    for batch in (1, 2):
        world.follow(placed)
        run(world, placed, batch)
    placed.close()
    return placed.checkpoint


def assign(checkpoint: Path, **roles) -> None:
    """Write another assignment into the last manifest, sealed anew."""
    path = sorted(checkpoint.glob("manifests/*.json"))[-1]
    given = {name.replace("_", "-"): {**ROLES, **each} for name, each in roles.items()}
    path.write_bytes(sealed(replace(read_manifest(path), assignment=given)))


def test_a_valid_checkpoint(checkpoint):
    found = verify_checkpoint(checkpoint)
    assert (found.valid, found.violations, found.tasks) == (True, (), 2)
    assert found.inspection.verified
    document = found.to_dict()
    assert document["schema"] == "taskplace.checkpoint_verification/1"
    assert (document["valid"], document["damaged"], document["checked"]) == (True, [], list(CHECKED))
    assert document["sizes"]["changelog"]["needed"] > 0


@pytest.mark.parametrize(
    ("roles", "invariant", "says"),
    [
        ({"executor_1": {"active": ["0_0"]}}, "once", "1 of 2 tasks are not active exactly once: 0_1 (0 times)"),
        ({"executor_1": {"active": ["0_0", "0_1"]}, "executor_2": {"active": ["0_1"]}}, "once", "0_1 (2 times)"),
        ({"executor_1": {"active": ["0_0", "0_1"], "standby": ["0_1"]}}, "disjoint", "0_1"),
        ({"executor_1": {"active": ["0_0", "0_1", "7_0"]}}, "known", "7_0, which is not a task"),
        ({"executor_1": {"active": ["0_0", "one"]}}, "known", "found 'one', expected a task id"),
    ],
)  # fmt: skip
def test_an_assignment_that_breaks_an_invariant(checkpoint, roles, invariant, says):
    assign(checkpoint, **roles)
    found = verify_checkpoint(checkpoint)
    assert found.inspection.sound
    assert not found.valid
    assert found.violations[0].invariant == invariant
    assert says in found.violations[0].text


def test_without_a_declaration_the_placement_is_not_checked(checkpoint):
    next(checkpoint.glob("epochs/*")).unlink()
    found = verify_checkpoint(checkpoint)
    assert (found.valid, found.tasks, found.violations) == (False, None, ())
    assert found.to_dict()["checked"] == []


def test_without_a_commit_there_is_nothing_to_check(checkpoint):
    for path in checkpoint.glob("manifests/*.json"):
        path.unlink()
    assert verify_checkpoint(checkpoint).tasks is None
