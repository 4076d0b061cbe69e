"""What `inspect` finds in a checkpoint: its contents, and every kind of damage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.errors import InputError
from taskplace.model.schema import schema
from taskplace.spark.inspection.checkpoint import checkpoint_at, committed, inspect, verify_checkpoint
from tests.golden.formats import HERE as GOLDEN
from tests.golden.formats import unpack
from tests.support.operators import run, stream

BATCHES = 5


@pytest.fixture
def checkpoint(world) -> Path:
    placed = stream(world, snapshot_interval=2)
    for batch in range(1, BATCHES):
        world.follow(placed)
        run(world, placed, batch)
    placed.close()
    return placed.checkpoint


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def named(checkpoint: Path, kind: str) -> Path:
    """Return the last file of this kind that is needed."""
    paths = {
        "changelog": "changelog/*.segment",
        "snapshot": "snapshots/*/*.arrow",
        "manifest": "manifests/*.json",
        "declaration": "epochs/*",
        "output": "batches/*4/sinks/**/*.parquet",
    }
    return sorted(path for path in checkpoint.glob(paths[kind]) if path.is_file())[-1]


def test_the_size_of_a_directory_on_another_disk(checkpoint, tmp_path):
    """A directory of a checkpoint may be a link. One below it is not followed: this one leads in a circle."""
    before = inspect(checkpoint).sizes
    (checkpoint / "snapshots").rename(tmp_path / "elsewhere")
    (checkpoint / "snapshots").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "circle").symlink_to(checkpoint)
    assert inspect(checkpoint).sizes == before


def test_a_sound_checkpoint(checkpoint):
    found = inspect(checkpoint, verify=True)
    assert (found.damaged, found.unfinished, found.sound) == ([], [], True)
    assert found.topology == "t"
    assert found.last.batch == BATCHES - 1
    assert found.assignment["executor-1"]["active"] == ["0_0", "0_1"]
    assert sorted(found.tasks) == ["0_0", "0_1"]
    assert sum(task.records for task in found.tasks.values()) == 8 * BATCHES
    for task in found.tasks.values():
        assert task.snapshot is not None
        assert task.replay == task.records - task.snapshot
    on_disk = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    assert sum(kind.bytes for kind in found.sizes.values()) == on_disk
    assert 0 < found.sizes["snapshots"].needed <= found.sizes["snapshots"].bytes
    assert found.to_dict()["schema"] == "taskplace.inspection/1"


@pytest.mark.parametrize("kind", ["changelog", "snapshot", "manifest", "declaration", "output"])
@pytest.mark.parametrize("harm", [Path.unlink, cut], ids=["missing", "cut"])
def test_what_is_missing_or_cut_is_found_without_reading_all(checkpoint, kind, harm):
    path = named(checkpoint, kind)
    harm(path)
    damaged = {damage.kind: damage for damage in inspect(checkpoint).damaged}
    if (kind, harm) == ("manifest", Path.unlink):  # the one before is the last then
        assert "manifest" in damaged
        return
    assert damaged[kind].file == str(path.relative_to(checkpoint))


@pytest.mark.parametrize("kind", ["changelog", "snapshot", "output"])
def test_changed_bytes_are_found_by_verify(checkpoint, kind):
    path = named(checkpoint, kind)
    if kind == "changelog":  # within the newest change, because a snapshot stands for the others
        histories, _ = committed(checkpoint)
        newest = max((history.changes[-1] for history in histories.values()), key=lambda one: one.version)
        path = checkpoint / newest.file
        flip_within(checkpoint, newest)
    else:
        flip(path)
    assert inspect(checkpoint).sound
    read = []
    (damage,) = inspect(checkpoint, verify=True, progress=read.append).damaged
    assert (damage.kind, damage.file) == (kind, str(path.relative_to(checkpoint)))
    assert "were changed" in damage.what
    assert (read[0].name, read[0].unit, read[0].done) == ("verifying", "bytes", 0)
    assert read[-1].done == read[-1].total > 0 and read[-1].ended


def test_a_last_manifest_that_spark_has_seen_and_nobody_else(world):
    placed = stream(world)
    placed.close()
    (placed.checkpoint / "spark" / "commits").mkdir(parents=True)
    (placed.checkpoint / "spark" / "commits" / "1").touch()
    (damage,) = inspect(placed.checkpoint).damaged
    assert damage.what == "missing: Spark has ended batch 1, and the last manifest is of batch 0"


def test_damage_that_costs_state_is_told_from_damage_that_does_not(checkpoint):
    newest = named(checkpoint, "snapshot")
    task = newest.parent.name
    newest.unlink()
    (damage,) = inspect(checkpoint).damaged
    assert (damage.tasks, damage.lost) == ((task,), ())  # the older snapshot and the changes since have it
    for path in checkpoint.glob("snapshots/*/*.arrow"):
        path.unlink(missing_ok=True)
    lost = {name for damage in inspect(checkpoint).damaged for name in damage.lost}
    assert task in lost


def flip_within(checkpoint, change):
    """Change a byte of one change in its file."""
    path = checkpoint / change.file
    data = bytearray(path.read_bytes())
    data[change.start + change.size // 2] ^= 1
    path.write_bytes(data)


def test_damage_that_no_copy_needs_any_more_is_no_alarm(checkpoint, capsys):
    """A newer snapshot stands for a damaged change. Without this snapshot, the same change counts."""
    histories, _ = committed(checkpoint)
    task, history, old = next(
        (task, history, change)
        for task, history in sorted(histories.items())
        if history.snapshots
        for change in history.changes
        if change.file
        and max((s.version for s in history.snapshots[:-1]), default=-1)
        < change.version
        <= history.snapshots[-1].version
    )
    flip_within(checkpoint, old)
    found = inspect(checkpoint, verify=True)
    assert found.sound and found.damaged == []
    (damage,) = found.unneeded
    assert (damage.file, damage.tasks, damage.lost) == (old.file, (str(task),), ())
    assert main(["inspect", str(checkpoint), "--verify"]) == 0
    out = capsys.readouterr().out
    assert (
        f"\nunneeded    changelog {old.file}: the bytes {old.start} to {old.start + old.size} were changed; no "
        in out
    )
    assert f"because newer files have the state of {task}; nothing needs to be done\n" in out
    assert out.endswith("result      sound (all bytes were read)\n")
    for command, kind in (("inspect", "inspection"), ("verify", "checkpoint_verification")):
        verify = ["--verify"] if command == "inspect" else []
        assert main([command, str(checkpoint), *verify, "--output", "json"]) == 0
        written = json.loads(capsys.readouterr().out)
        jsonschema.validate(written, schema(kind), cls=jsonschema.Draft202012Validator)
        assert (written["damaged"], len(written["unneeded"])) == ([], 1)

    (checkpoint / history.snapshots[-1].file).unlink()
    found = inspect(checkpoint, verify=True)
    assert {damage.kind for damage in found.damaged} == {"changelog", "snapshot"}
    assert old.file in {damage.file for damage in found.damaged}


def test_what_is_unfinished(checkpoint):
    for log, batch in (("offsets", BATCHES), ("commits", BATCHES - 1)):
        (checkpoint / "spark" / log).mkdir(parents=True)
        (checkpoint / "spark" / log / f"{batch}").touch()
    (checkpoint / "batches" / f"{BATCHES:010d}").mkdir()
    (checkpoint / "snapshots" / "0_0" / "9.tmp").touch()
    (checkpoint / "epochs" / "0000000002").write_bytes((checkpoint / "epochs" / "0000000001").read_bytes())
    found = inspect(checkpoint)
    assert found.sound
    assert found.unfinished == [
        "batch 5: planned by Spark, and not committed; it runs now, or at the next start",
        "batch 5: files of attempts, and no manifest: batches/0000000005",
        "driver 2: has taken over, and has not committed a batch",
        "snapshots/0_0/9.tmp: was begun, and not made visible",
    ]


def test_an_inspection_begins_again_if_a_driver_commits_meanwhile(world, monkeypatch):
    from taskplace.spark.inspection import checkpoint as module

    placed = stream(world)
    really, ran = module.broken, []

    def commits(root, parts, **how):
        if not ran:
            ran.append(run(world, placed, 1))
            (segment,) = (path for path in root.glob("changelog/0*.segment") if path.stat().st_size)
            away = segment.rename(segment.with_suffix(".away"))
            wrong = really(root, parts, **how)
            away.rename(segment)
            return wrong
        return really(root, parts, **how)

    monkeypatch.setattr(module, "broken", commits)
    found = inspect(placed.checkpoint)
    assert found.sound
    assert found.last.batch == 1


def test_a_path_without_a_checkpoint_is_refused_with_the_nearest(checkpoint, tmp_path):
    with pytest.raises(
        InputError, match=rf"there is no such directory; expected .*; did you mean {checkpoint}\?"
    ):
        checkpoint_at(checkpoint.with_name("chekpoint"))
    with pytest.raises(
        InputError, match=rf"this is no checkpoint of taskplace: .*; did you mean {checkpoint}\?"
    ):
        checkpoint_at(tmp_path)
    with pytest.raises(InputError, match=rf"did you mean {checkpoint}\?"):
        checkpoint_at(checkpoint / "manifests")


def test_a_checkpoint_is_inspected_without_spark_and_arrow(checkpoint):
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pyspark', 'pyarrow', 'lmdb', 'pandas', 'psutil']))\n"
        "from taskplace.cli import main\n"
        f"codes = [main([name, {str(checkpoint)!r}]) for name in ('inspect', 'verify', 'status')]\n"
        f"codes.append(main(['can-remove', {str(checkpoint)!r}, '1']))\n"
        "sys.exit(codes != [0, 0, 4, 4])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "file", sorted(GOLDEN.glob("manifest-*/*.tar.xz")), ids=lambda f: f"{f.parent.name}/{f.name}"
)
def test_checkpoints_of_earlier_versions_are_sound(file, tmp_path):
    unpack(file, tmp_path)
    verified = verify_checkpoint(tmp_path / "checkpoint")
    found = verified.inspection
    assert found.damaged == []
    assert found.last is not None
    assert found.tasks
    assert verified.valid and verified.tasks >= len(found.tasks)


FOREIGN = {
    "manifests": ["9" * 30 + ".json", "²000000000.json", "5.json", "+000000005.json", "note.json"],
    "epochs": ["9" * 30, "loop", "7"],
    "changelog": ["dir.segment", "²-1-a.segment", "note.segment"],
    "batches": ["9" * 30, "x", "²"],
    "spark/offsets": ["9" * 30, "²", "0000000099"],
    "spark/commits": ["9" * 30, "²", "0000000099"],
}


def test_files_of_others_are_left_alone(world):
    """By the inspection, and by a driver that commits and prunes."""
    placed = stream(world, snapshot_interval=2)
    files = [placed.checkpoint / folder / name for folder, names in FOREIGN.items() for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("not of taskplace")
    for batch in range(1, BATCHES):
        world.follow(placed)
        run(world, placed, batch)
    assert placed.journal.last_batch == BATCHES - 1
    placed.close()
    found = inspect(placed.checkpoint, verify=True)
    assert (found.damaged, found.epochs, found.last.batch) == ([], [1], BATCHES - 1)
    assert all(file.exists() for file in files)


def test_manifests_that_are_missing_in_a_row_are_one_damage(checkpoint):
    """However many they are: a damaged last manifest does not say from which one on they are needed."""
    newest = named(checkpoint, "manifest")
    flip(newest)
    newest.rename(newest.with_name("9000000000.json"))
    last = inspect(checkpoint).batches[-2]
    missing = [one for one in inspect(checkpoint).damaged if one.what.startswith("missing")]
    assert [(one.file, one.what) for one in missing] == [
        (
            f"manifests/{last + 1:010d}.json",
            f"missing, and so are {9_000_000_000 - last - 2:,} after it",
        )
    ]


def test_a_checkpoint_whose_manifests_have_all_gone_is_damaged(checkpoint):
    """Its status still says that batches were committed. Before the first commit, there is nothing to be missing."""
    for file in (checkpoint / "manifests").iterdir():
        file.unlink()
    (damage,) = inspect(checkpoint).damaged
    assert damage.what == (f"missing: the driver's status says that batch {BATCHES - 1} was committed")
    assert not verify_checkpoint(checkpoint).valid
    (checkpoint / "status.json").unlink()
    assert inspect(checkpoint).sound
