"""A copy that grows, and a copy that two processes have: workers of one executor, or of two."""

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

from taskplace.spark.checkpoint.files import Changes
from taskplace.spark.messages import EMPTY, Change, Fence, History, Position
from taskplace.spark.state import environment
from taskplace.spark.state import environment as warm
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DATA, META, ReadOnly
from taskplace.spark.state.transaction import View
from tests.support.copies import peek, snapshot_of

STORES = ["s", "t"]
SMALL_MAP = 1 << 17


def bulk(count: int, tag: str = "v") -> Changes:
    return {"s": {b"%06d" % i: (tag * 200).encode() for i in range(count)}}


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
