"""A copy as files of a host: starting anew, damage, another boot, refusals."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest
from msgspec.structs import replace

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.checkpoint.files import Changes
from taskplace.spark.messages import EMPTY, Change, Fence, History, Position
from taskplace.spark.state import environment
from taskplace.spark.state import environment as meta_module
from taskplace.spark.state import environment as warm
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DATA, META, ReadOnly
from taskplace.spark.state.transaction import View
from tests.support.copies import peek, snapshot_of

STORES = ["s", "t"]


def bulk(count: int, tag: str = "v") -> Changes:
    return {"s": {b"%06d" % i: (tag * 200).encode() for i in range(count)}}


# -- starting anew
@pytest.mark.parametrize("trimmed", [True, False])
def test_a_snapshot_replaces_all_that_was_there(tmp_path, trimmed, committed, contents):
    """Keys that were deleted meanwhile do not come back, whether the snapshot is the only way or the cheaper one."""
    first = committed(History(), tmp_path, {"s": {b"gone": b"1", b"k": b"1"}, "t": {b"gone": b"1"}}, 0)
    deleted = committed(first, tmp_path, {"s": {b"gone": None, b"k": b"2"}, "t": {b"gone": None}}, 1)
    end = committed(deleted, tmp_path, {"s": {b"k": b"3"}}, 2)
    snapshot = snapshot_of(tmp_path, [("s", [(b"k", b"2")])], deleted.end)
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(first, tmp_path)
        done = copy.bring_to(History(end.changes[2:] if trimmed else end.changes, (snapshot,)), tmp_path)
        assert (done.restored, done.replayed, done.scratch) == (1, 1, trimmed)
        assert contents(copy) == {"s": {b"k": b"3"}, "t": {}}


def test_a_copy_from_nowhere_starts_empty(tmp_path, committed, contents):
    """What it has belongs to no committed attempt, and there is no undo record: it came from another checkpoint."""
    other_life = committed(History(), tmp_path, {"s": {b"other": b"1"}, "t": {b"other": b"1"}}, 7)
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(other_life, tmp_path)
        assert copy.bring_to(history, tmp_path).scratch
        assert contents(copy) == {"s": {b"k": b"1"}, "t": {}}
        copy.commit_unchanged()
        copy.bring_to(History(), tmp_path)
        assert contents(copy) == {"s": {}, "t": {}}


# -- damage, and another boot
@pytest.mark.parametrize("damage", [b"\x00" * 4096, b"garbage " * 1024, b"short", b""])
def test_a_damaged_copy_is_made_again(tmp_path, damage, committed, contents):
    history = committed(History(), tmp_path, bulk(100), 0)
    path = tmp_path / "c"
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
    data = path / "data.mdb"
    data.write_bytes(damage + data.read_bytes()[len(damage) :] if len(damage) > 100 else damage)
    assert peek(path) is None
    with Copy(path, STORES) as copy:
        done = copy.bring_to(history, tmp_path)
        assert (done.replayed, done.scratch) == (100, True)
        assert contents(copy)["s"] == bulk(100)["s"]
        copy.commit_unchanged()
    assert peek(path) == history.end


@pytest.mark.parametrize(
    ("name", "other"), [("boot_id", lambda: "another boot"), ("FORMAT", meta_module.FORMAT + 1)]
)
def test_a_copy_of_another_boot_or_format_is_made_again(
    tmp_path, monkeypatch, committed, contents, name, other
):
    """The host crashed, and LMDB does not sync: what the file says may not be what was written."""
    history = committed(History(), tmp_path, bulk(10), 0)
    path = tmp_path / "c"
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"more": b"1"}}, Position(7, "lost", 11))
    monkeypatch.setattr(meta_module, name, other)
    assert peek(path) is None
    with Copy(path, STORES) as copy:
        done = copy.follow(history, tmp_path)
        assert done is not None and (done.replayed, done.scratch, done.rolled_back) == (10, True, False)
        copy.bring_to(history, tmp_path)
        assert contents(copy)["s"] == bulk(10)["s"]
    assert peek(path) == history.end


# -- looking from outside
def test_peek(tmp_path, committed):
    path = tmp_path / "c"
    assert peek(path) is None
    assert not path.exists(), "looking makes nothing"
    with Copy(path, STORES):
        pass
    assert peek(path) is None, "a copy that was never brought anywhere"
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
    assert peek(path) == history.end
    with Copy(path, STORES) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "maybe", 2))
        assert copy.position() == Position(1, "maybe", 2)
    assert peek(path) == history.end, "an attempt that nobody has committed does not count"


# -- what a copy refuses
def test_older_work_is_refused_and_changes_nothing(tmp_path, committed):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    path = tmp_path / "c"
    with Copy(path, STORES, fence=Fence(2, 1)) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "new", 2))
    for older in (Fence(1, 9), Fence(2, 0)):
        with (
            Copy(path, STORES, fence=older) as copy,
            pytest.raises(Fenced, match=r"c: the fence of this attempt is .*epoch"),
        ):
            copy.bring_to(history, tmp_path)
    with Copy(path, STORES) as copy:
        assert copy.position() == Position(1, "new", 2)
    for as_new in (Fence(2, 1), Fence(3, 0)):
        with Copy(path, STORES, fence=as_new) as copy:
            copy.bring_to(history, tmp_path)
            copy.commit_unchanged()


def test_a_fence_is_not_forgotten_by_starting_anew(tmp_path, committed):
    with Copy(tmp_path / "c", STORES, fence=Fence(2, 1)) as copy:
        copy.bring_to(History(), tmp_path)
        copy.commit({"s": {b"k": b"1"}}, Position(1, "x", 1))
    history = committed(History(), tmp_path, {"s": {b"k": b"2"}}, 5)
    unknown = History((replace(history.changes[0], base="", offset=1),))
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(unknown, tmp_path)
    with Copy(tmp_path / "c", STORES, fence=Fence(1, 9)) as copy, pytest.raises(Fenced):
        copy.bring_to(unknown, tmp_path)


def test_a_damaged_file_leaves_the_copy_where_it_was(tmp_path, committed, contents):
    first = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    both = committed(first, tmp_path, {"s": {b"k": b"2"}}, 1)
    (tmp_path / both.changes[1].file).write_bytes(b"torn")
    with (
        Copy(tmp_path / "c", STORES) as copy,
        pytest.raises(CheckpointError, match=r"1\.arrow: found 4 bytes"),
    ):
        copy.bring_to(both, tmp_path)
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.position() == first.end
        assert not copy.bring_to(first, tmp_path).scratch
        assert contents(copy)["s"] == {b"k": b"1"}


# -- transactions that are over
USES = {
    "get_many": lambda copy: copy.get_many("s", [b"k"]),
    "scan": lambda copy: list(copy.scan("s")),
    "count": lambda copy: copy.count("s"),
    "commit": lambda copy: copy.commit({}, Position(1, "b", 1)),
    "commit_unchanged": lambda copy: copy.commit_unchanged(),
}
ENDS = {
    "begun": None,
    "committed": lambda copy: copy.commit({"s": {b"k": b"2"}}, Position(1, "b", 1)),
    "unchanged": lambda copy: copy.commit_unchanged(),
    "grown": lambda copy: copy.grow(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("use", USES)
def test_a_copy_is_used_in_a_transaction_only(tmp_path, committed, end, use):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(tmp_path / "c", STORES) as copy:
        if finish := ENDS[end]:
            copy.bring_to(history, tmp_path)
            finish(copy)
        with pytest.raises(RuntimeError, match=r"bring_to\(\) has to come first"):
            USES[use](copy)


# -- a copy that grows, and a copy that two processes have: workers of one executor, or of two


SMALL_MAP = 1 << 17


@pytest.fixture
def other() -> Iterator[Callable[[Callable[[], Iterator[object]]], Callable[[], object]]]:
    """Runs a generator in another process: each call of what it returns awaits the next thing yielded."""
    context = multiprocessing.get_context("fork")
    processes = []

    def start(work: Callable[[], Iterator[object]]) -> Callable[[], object]:
        here, there = context.Pipe()

        def run() -> None:
            steps = work()
            while there.recv():
                there.send(next(steps))

        process = context.Process(target=run, daemon=True)
        process.start()
        processes.append(process)

        def advance() -> object:
            here.send(True)
            assert here.poll(30), "the other process does not answer"
            return here.recv()

        advance.process = process  # type: ignore[attr-defined]
        return advance

    yield start
    for process in processes:
        process.kill()
        process.join()


# -- growth


def test_a_full_map_grows_and_nothing_is_lost(tmp_path, monkeypatch, contents):
    monkeypatch.setattr(environment, "INITIAL_MAP", SMALL_MAP)
    history, runs = History(), 0
    with Copy(tmp_path / "c", STORES) as copy:

        def work() -> None:
            nonlocal runs
            runs += 1
            copy.bring_to(history, tmp_path)
            copy.commit(bulk(5000), Position(0, "a", 5000))

        copy.growing(work)
        assert copy.position() == Position(0, "a", 5000)
    assert runs > 2, "the map was meant to be too small"
    assert (tmp_path / "c" / "data.mdb").stat().st_size > SMALL_MAP
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(History((Change(0, "a", "", 5000, 0),)), tmp_path)
        assert contents(copy)["s"] == bulk(5000)["s"]


@pytest.mark.parametrize("way", ["replay", "restore"])
def test_it_grows_while_it_catches_up(tmp_path, monkeypatch, way, committed, contents):
    monkeypatch.setattr(environment, "INITIAL_MAP", SMALL_MAP)
    history = History()
    for batch in range(4):
        history = committed(
            history, tmp_path, {"s": {b"%d-%d" % (batch, i): b"x" * 300 for i in range(500)}}, batch
        )
    state = {b"%d-%d" % (batch, i): b"x" * 300 for batch in range(4) for i in range(500)}
    if way == "restore":
        history = History((), (snapshot_of(tmp_path, [("s", sorted(state.items()))], history.end),))
    with Copy(tmp_path / "c", STORES) as copy:
        done = copy.growing(lambda: copy.follow(history, tmp_path))
        assert done is not None and bool(done.restored) == (way == "restore")
    with Copy(tmp_path / "c", STORES) as copy:
        assert not copy.bring_to(history, tmp_path).scratch
        assert contents(copy)["s"] == state


def test_an_attempt_that_lost_is_rolled_back_after_growing(tmp_path, monkeypatch, committed, contents):
    monkeypatch.setattr(environment, "INITIAL_MAP", SMALL_MAP)
    history = committed(History(), tmp_path, bulk(200, "old"), 0)
    with Copy(tmp_path / "c", STORES) as copy:

        def work() -> None:
            copy.bring_to(history, tmp_path)
            copy.commit(bulk(3000, "new"), Position(1, "lost", 3200))

        copy.growing(work)
        assert copy.growing(lambda: copy.bring_to(history, tmp_path)).rolled_back
        assert contents(copy)["s"] == bulk(200, "old")["s"]


# -- other processes


def grown_by_another(path: Path, root: Path) -> Callable[[], Iterator[object]]:
    def work() -> Iterator[object]:
        with Copy(path, STORES) as copy:
            copy.bring_to(History(), root)
            yield "holds the copy"
            copy.growing(
                lambda: (copy.bring_to(History(), root), copy.commit(bulk(3000), Position(0, "a", 3000)))
            )
        yield "has grown it"

    return work


def test_a_map_that_another_process_has_grown_is_taken_over(tmp_path, monkeypatch, other):
    monkeypatch.setattr(environment, "INITIAL_MAP", SMALL_MAP)
    advance = other(grown_by_another(tmp_path / "c", tmp_path))
    with Copy(tmp_path / "c", STORES) as copy:
        advance(), advance()
        at, pieces = copy.dump(1000)
        assert at == copy.position() == Position(0, "a", 3000)
        assert sum(len(entries) for _, entries in pieces) == 3000
        copy.bring_to(History((Change(0, "a", "", 3000, 0),)), tmp_path)
        assert copy.count("s") == 3000


def test_also_when_it_grows_while_the_copy_is_being_opened(tmp_path, monkeypatch, other):
    monkeypatch.setattr(environment, "INITIAL_MAP", SMALL_MAP)
    advance = other(grown_by_another(tmp_path / "c", tmp_path))
    advance()
    really_open = lmdb.open

    def open_slowly(*args, **kwargs):
        env = really_open(*args, **kwargs)
        advance()  # the other one commits between our opening the file and our first transaction
        return env

    monkeypatch.setattr(environment.lmdb, "open", open_slowly)
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.position() == Position(0, "a", 3000)


def test_two_attempts_run_one_after_the_other(tmp_path, other, contents):
    """The second one gets the copy when the first has committed, and finds what that left."""
    history, path = History(), tmp_path / "c"

    def first() -> Iterator[object]:
        with Copy(path, STORES, fence=Fence(1, 0)) as copy:
            copy.bring_to(history, tmp_path)
            yield "holds the copy"
            copy.commit({"s": {b"k": b"first"}}, Position(0, "first", 1))
            yield "committed"

    advance = other(first)
    advance()
    brought = threading.Event()
    rolled_back = []

    def second() -> None:
        with Copy(path, STORES, fence=Fence(1, 0)) as copy:
            rolled_back.append(copy.bring_to(history, tmp_path).rolled_back)
            brought.set()
            assert contents(copy)["s"] == {}
            copy.commit({"s": {b"k": b"second"}}, Position(0, "second", 1))

    thread = threading.Thread(target=second)
    thread.start()
    assert not brought.wait(0.2), "both have the copy"
    assert advance() == "committed"
    assert brought.wait(30)
    thread.join(30)
    assert rolled_back == [True]
    with Copy(path, STORES) as copy:
        assert copy.position().attempt == "second"


def test_a_killed_holder_lets_go(tmp_path, other, committed, contents):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)

    def doomed() -> Iterator[object]:
        with Copy(tmp_path / "c", STORES) as copy:
            copy.bring_to(history, tmp_path)
            copy._begun().put("s", [b"k", b"l"], [b"2", b"x" * 100_000])
            yield "has written, not committed"

    advance = other(doomed)
    advance()
    os.kill(advance.process.pid, signal.SIGKILL)
    advance.process.join()
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(history, tmp_path)
        assert contents(copy) == {"s": {b"k": b"1"}, "t": {}}


def test_a_follower_leaves_an_attempt_alone_that_came_before_it_got_the_copy(
    tmp_path, monkeypatch, other, committed
):
    """The follow job began before the copy was promoted, and waits for it while the attempt runs."""
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    path = tmp_path / "c"

    def promoted() -> Iterator[object]:
        with Copy(path, STORES, fence=Fence(1, 1)) as copy:
            copy.bring_to(history, tmp_path)
            copy.commit({"s": {b"k": b"2"}}, Position(1, "new", 2))
        yield "committed locally"

    advance = other(promoted)
    with Copy(path, STORES) as copy:
        really_begin, waits = copy._begin, [advance]

        def begin_late():
            if waits:
                waits.pop()()
            return really_begin()

        monkeypatch.setattr(copy, "_begin", begin_late)
        assert copy.follow(history, tmp_path) is None
        assert copy.position() == Position(1, "new", 2)


def test_peek_does_not_wait(tmp_path, other):
    def holder() -> Iterator[object]:
        with Copy(tmp_path / "c", STORES) as copy:
            copy.bring_to(History(), tmp_path)
            copy.commit_unchanged()
            copy.bring_to(History(), tmp_path)
            yield "holds the copy"

    other(holder)()
    assert peek(tmp_path / "c") == EMPTY


# -- readers that were killed


@pytest.fixture
def kept_open(tmp_path, other, committed) -> tuple[History, Path, Callable[[], object]]:
    """A copy that another process has open all the time, so that its table of readers is never made anew; and that."""
    history, path = committed(History(), tmp_path, bulk(200), 0), tmp_path / "c"

    def keeper() -> Iterator[object]:
        with Copy(path, STORES) as copy:
            copy.follow(history, tmp_path)
            while True:
                yield copy._env.lmdb.readers()

    readers = other(keeper)
    readers()
    return history, path, readers


def killed_reader(other, path: Path, transactions: int = 1) -> int:
    """A process reads the copy, and is killed while it does; return its id."""

    def reader() -> Iterator[object]:
        with ReadOnly(path, [META]) as environment:
            held = [environment.begin() for _ in range(transactions)]
            yield len(held)

    advance = other(reader)
    assert advance() == transactions
    advance.process.kill()
    advance.process.join()
    return advance.process.pid


def test_readers_that_were_killed_do_not_fill_the_table(tmp_path, other, kept_open):
    history, path, _ = kept_open
    for _ in range(8):
        killed_reader(other, path, transactions=20)  # of 126 that there may be
    assert peek(path) == history.end
    with Copy(path, STORES) as copy:
        copy.bring_to(history, tmp_path)
        assert copy.position() == history.end


def look_at(opened: str, path: Path, history: History) -> None:
    if opened == "peek":
        assert peek(path) == history.end
    elif opened == "view":
        with View(path, "s", history) as view:
            assert len(list(view.scan())) == 200
    else:
        with Copy(path, STORES) as copy:
            assert copy.position() == history.end


@pytest.mark.parametrize("opened", ["copy", "view", "peek"])
def test_whoever_opens_a_copy_takes_away_what_a_killed_reader_left(other, kept_open, opened):
    history, path, readers = kept_open
    pid = killed_reader(other, path)
    assert str(pid) in readers().split()
    look_at(opened, path, history)
    assert str(pid) not in readers().split()


@pytest.mark.parametrize("opened", ["copy", "view", "peek"])
def test_a_reader_that_lives_is_left_alone(other, kept_open, opened):
    history, path, readers = kept_open

    def reading() -> Iterator[object]:
        with View(path, "s", history) as view:
            yield os.getpid()
            yield len(list(view.scan()))

    advance = other(reading)
    pid = advance()
    look_at(opened, path, history)
    assert str(pid) in readers().split()
    assert advance() == 200


def test_pages_that_a_killed_reader_was_reading_are_used_again(tmp_path, other, kept_open):
    history, path, _ = kept_open
    killed_reader(other, path)
    with Copy(path, STORES) as copy:

        def pages_after(batches: int) -> int:
            for _ in range(batches):
                copy.bring_to(history, tmp_path)
                copy.commit(bulk(200, "new"), Position(1, "lost", 400))
            return copy._env.lmdb.info()["last_pgno"]

        few = pages_after(10)
        assert pages_after(40) < 2 * few, "with each batch, the file grows"


def test_a_view_that_opens_a_copy_cannot_write_it(tmp_path, committed, monkeypatch):
    monkeypatch.setattr(warm, "WARM", warm.Warm())  # a test before may have let this process keep copies open
    history, data = committed(History(), tmp_path, bulk(5), 0), tmp_path / "c" / DATA
    with Copy(data.parent, STORES) as copy:
        copy.bring_to(history, tmp_path)
    with View(data.parent, "s", history):
        held = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == data]
        assert held
        assert {fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in held} == {os.O_RDONLY}
