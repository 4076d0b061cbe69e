"""Each kind of file of the checkpoint and of a host, cut, changed or removed: a clear error or the right state."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from contextlib import suppress

import pytest
from msgspec.structs import replace

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import decode_records, write_file
from taskplace.spark.checkpoint.history import without
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import checksum_of
from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import structure
from taskplace.spark.messages import Change, FollowRequest, History, Position
from taskplace.spark.processors import Count
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import Store
from taskplace.spark.worker import bin_context as segments
from taskplace.spark.worker import identity
from taskplace.spark.worker.follow import follow
from taskplace.spark.worker.guard import DEATHS, guarded
from topology import TaskId, Topology

SEED = 20261121
PAGE = 4096
FLIGHTS = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
PLANES = [("a", 10), ("b", 20)]


def cut(path, rng, end=None):
    with path.open("r+b") as file:
        file.truncate(rng.randrange(end or path.stat().st_size))


def change(path, rng, end=None, start=0):
    data = bytearray(path.read_bytes())
    data[rng.randrange(start, end or len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def remove(path, rng):
    path.unlink()


DAMAGES = [cut, change, remove]


def harm(root, piece, damage, rng):
    """Damage the file of a change or a snapshot, so that it cannot be read. A change has a section of its file."""
    where = {}
    if isinstance(piece, Change) and damage is not remove:
        where["end"] = piece.start + piece.size
    if isinstance(piece, Change) and damage is change:
        where["start"] = piece.start
    damage(root / piece.file, rng, **where)


@pytest.fixture
def rng():
    print(f"seed {SEED}")
    return random.Random(SEED)


@pytest.fixture
def ran(runtime, monkeypatch):
    """Six batches, a segment for each; each task has a snapshot after the second and the fourth."""
    monkeypatch.setattr(segments, "BATCHES", 1)
    for batch in range(6):
        runtime.run_batch([(f"{key}{batch % 2}", n) for key, n in FLIGHTS], PLANES)
        if batch in (1, 3):
            for task, made in runtime.follow(snapshot=runtime.history).snapshots.items():
                old = runtime.history[task]
                runtime.history[task] = History(old.changes, (*old.snapshots, made))
    return runtime


PARTS = {
    "last change": lambda history: history.changes[-1],
    "a change that a snapshot covers": lambda history: history.changes[2],
    "first change": lambda history: history.changes[0],
    "newest snapshot": lambda history: history.snapshots[-1],
    "oldest snapshot": lambda history: history.snapshots[0],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", PARTS)
def test_a_damaged_file_of_the_checkpoint(ran, rng, damage, which):
    task = TaskId(0, 0)
    truth = ran.contents(task)
    damaged = PARTS[which](ran.history[task])
    harm(ran.checkpoint, damaged, damage, rng)
    # What is pruned away is not looked at again, so that each file has to serve here.
    history = ran.history[task]
    if which != "first change":
        ran.history[task] = replace(history, changes=history.changes[2:])
    if which in ("a change that a snapshot covers", "first change"):  # large snapshots are the second choice
        kept = tuple(replace(s, records=10**6) for s in history.snapshots)
        ran.history[task] = replace(ran.history[task], snapshots=kept)
    if which == "first change":
        ran.history[task] = replace(ran.history[task], snapshots=ran.history[task].snapshots[-1:])
    ran.be("2")  # has no copy
    if which != "last change":
        assert ran.contents(task, "2") == truth
    else:
        with pytest.raises(CheckpointError, match=damaged.file):
            ran.contents(task, "2")
        assert ran.contents(task, "1") == truth  # a copy that has it goes on


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_all_ways_damaged_is_an_error_that_names_a_file(ran, rng, damage, trimmed):
    history = ran.history[TaskId(0, 0)]
    for piece in (*history.snapshots, history.changes[0]):
        harm(ran.checkpoint, piece, damage, rng)
    if trimmed:  # as the journal does it: what two snapshots cover goes
        later = tuple(c for c in history.changes if c.version > history.snapshots[0].version)
        ran.history[TaskId(0, 0)] = replace(history, changes=later)
    last = history.snapshots[0] if trimmed else history.changes[0]
    ran.be("2")
    with pytest.raises(CheckpointError, match=rf"{last.file}: (found|the file is missing)"):
        ran.contents(TaskId(0, 0), "2")
    report = ran.follow("2", follow={TaskId(0, 0): ran.history[TaskId(0, 0)]})
    assert last.file in report.errors[TaskId(0, 0)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_of_the_snapshots_that_cover_a_damaged_change_any_serves(ran, rng, damage):
    truth = ran.contents(TaskId(0, 0))
    history = ran.history[TaskId(0, 0)]
    for piece in (history.changes[1], history.snapshots[-1]):
        harm(ran.checkpoint, piece, damage, rng)
    # It is replayed as long as that is cheaper, and then meets the damage.
    large = tuple(replace(s, records=10**6) for s in history.snapshots)
    ran.history[TaskId(0, 0)] = replace(history, snapshots=large)
    ran.be("2")
    assert ran.contents(TaskId(0, 0), "2") == truth


def test_a_history_never_does_without_what_only_a_damaged_file_has(ran):
    for history in ran.history.values():
        for piece in (*history.changes, *history.snapshots):
            around = without(history, piece)
            if around is None:
                assert isinstance(piece, Change)
                assert piece.version > history.snapshots[-1].version
            else:
                assert around.end == history.end
                assert piece not in (*around.changes, *around.snapshots)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest(tmp_path, rng, damage):
    for number in range(40):
        root = tmp_path / str(number)
        journal = Journal(root, {"query": "q"})
        for batch in range(3):
            name = f"changelog/0_0/{batch:010d}-a{batch}.arrow"
            write_file(root / name, b"x", sync=False)
            base = journal.history[TaskId(0, 0)].end.attempt if batch else ""
            made = Change(batch, f"a{batch}", base, batch + 1, 1, name, 1, checksum_of(b"x"))
            journal.commit(batch, 1, {TaskId(0, 0): made}, {}, {}, event_times={"s": 10 * batch})
        truth, last = journal.history, journal.last
        victim = rng.choice(sorted((root / "manifests").iterdir()))
        if damage is remove and victim.stem.endswith(("0", "2")):
            continue  # the end, or what might be pruned: Spark's checkpoint tells, and a missing base
        damage(victim, rng)
        try:
            found = Journal(root, {"query": "q"})
        except CheckpointError as error:
            assert victim.name in str(error) or "is missing" in str(error)
        else:
            assert (found.history, found.last) == (truth, last)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_declaration(tmp_path, rng, damage):
    topo = Topology("t")
    topo.source("s", key=["k"], partitions=2).process(Count("n", by={"k": "string"}))
    built = topo.build()
    for number in range(40):
        root = tmp_path / str(number)
        journal = Journal(root, {}, lambda _, r=root: structure.declare(r, built, programs(built), None))
        journal.commit(0, 1, {}, {}, {})
        file = root / "epochs" / "0000000001"
        damage(file, rng)
        try:
            found = structure.declare(root, built, programs(built), committed=1)
        except CheckpointError as error:
            assert str(file) in str(error)
        else:
            assert found == journal.declaration


def used(file):
    """The bytes of a copy's file; what follows them is a hole, which is not read."""
    with file.open("rb") as opened:
        end = 0
        with suppress(OSError):  # no more data
            while True:
                start = os.lseek(opened.fileno(), end, os.SEEK_DATA)
                end = os.lseek(opened.fileno(), start, os.SEEK_HOLE)
        opened.seek(0)
        return opened.read(end).rstrip(b"\0")


@pytest.mark.parametrize("damage", [cut, remove])
def test_a_copy_whose_file_is_damaged_is_made_again(ran, rng, damage):
    truth = ran.contents(TaskId(0, 0))
    file = ran.copy(TaskId(0, 0)) / "data.mdb"
    for _ in range(20):
        os.truncate(file, len(used(file)))
        damage(file, rng)
        ran.be("1")
        assert ran.contents(TaskId(0, 0)) == truth


def outcome(work):
    """What comes of `work` in a process that may not survive it: "right", "wrong", an error's name, or a signal's."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            found = "right" if work() else "wrong"
        except BaseException as error:
            found = type(error).__name__
        os.write(writes, found.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        said = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said or signal.Signals(-status).name


@pytest.mark.parametrize("flips", [40, pytest.param(150, marks=pytest.mark.long)])
def test_a_bit_that_flipped_in_a_copy_is_never_taken_for_state(ran, rng, flips):
    """Whoever reads it finds out, or dies of it; after two such deaths at most the copy is made again."""
    task, program = TaskId(0, 0), ran.first
    truth = ran.contents(task)
    path = ran.copy(task)
    file = path / "data.mdb"
    whole, length = used(file), file.stat().st_size

    def read_all():
        with guarded(path, identity.executor()[1]), Copy(path, program.databases) as copy:

            def work():
                copy.bring_to(ran.history[task], ran.checkpoint)
                stores = {name: Store(schema, copy) for name, schema in program.stores.items()}
                return {
                    name: sorted((row for t in store.scan() for row in t.to_pylist()), key=repr)
                    for name, store in stores.items()
                }

            return copy.growing(work) == truth

    def snapshot_all():
        made = ran.follow(snapshot={task: ran.history[task]}).snapshots.get(task)
        if made is None:
            return True
        found = [
            entry
            for _, entries in decode_records((ran.checkpoint / made.file).read_bytes())
            for entry in entries
        ]
        return sorted(found) == entries_of_the_copy

    with Copy(path, program.databases) as copy:
        entries_of_the_copy = sorted(e for _, entries in copy.dump(100)[1] for e in entries)
    outcomes = Counter()
    for _ in range(flips):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        for work in (snapshot_all, read_all):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700)
            file.write_bytes(data)
            os.truncate(file, length)
            found, deaths = outcome(work), 0
            while found.startswith("SIG") and deaths < DEATHS:
                found, deaths = outcome(work), deaths + 1
            outcomes[work.__name__, deaths, found] += 1
    print(dict(outcomes))
    assert {found for _, _, found in outcomes} == {"right"}


def test_a_branch_of_the_tree_that_leads_astray_does_not_get_into_snapshots(ran, rng, tmp_path, committed):
    """An attempt may miss a key that is there, and put it in once more. Whoever reads the whole finds out."""
    truth = {b"%08d" % i: b"100" for i in range(6000)}
    history = committed(History(), ran.checkpoint, {"s": truth}, 0)
    path = ran.copy(TaskId(0, 0))
    shutil.rmtree(path)
    with Copy(path, ["s"]) as copy:
        copy.follow(history, ran.checkpoint)
    file = path / "data.mdb"
    whole, length = used(file), file.stat().st_size
    # Its number comes first, and after that what kind of page it is (in a multi-page value, neither).
    starts = [(p, whole[p : p + 8] + whole[p + 10 : p + 12]) for p in range(2 * PAGE, len(whole), PAGE)]
    branches = [p for p, start in starts if start == (p // PAGE).to_bytes(8, "little") + b"\1\0"]
    assert branches
    ran.be("1")

    def work():
        with Copy(path, ["s"]) as copy:
            copy.bring_to(history, ran.checkpoint)
            seen = dict(zip(truth, copy.get_many("s", list(truth)), strict=True))
            anew = {key: b"1" for key, value in seen.items() if value is None}
            later = Position(1, "b", history.end.offset + len(anew))
            copy.commit({"s": anew}, later)
        end = History((Change(1, "b", history.end.attempt, later.offset, 0),))
        roots = str(ran.checkpoint), str(ran.state)
        orders = FollowRequest(
            "executor-1", *roots, "app", {0: ["s"]}, {0: ["s"]}, snapshot={TaskId(0, 0): end}
        )
        done = follow(orders)
        if TaskId(0, 0) not in done.snapshots:
            return done.removed == [TaskId(0, 0)]
        data = (ran.checkpoint / done.snapshots[TaskId(0, 0)].file).read_bytes()
        found = [entry for _, entries in decode_records(data) for entry in entries]
        return sorted(found) == sorted({**truth, **anew}.items())

    outcomes = Counter()
    for _ in range(60):
        data = bytearray(whole)
        page = rng.choice(branches)
        data[rng.randrange(page + 16, page + PAGE)] ^= 1 << rng.randrange(8)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        file.write_bytes(data)
        os.truncate(file, length)
        outcomes[outcome(work)] += 1
    print(dict(outcomes))
    assert "wrong" not in outcomes
    assert outcomes["right"] > 20
