"""Jobs leave nothing behind, however large what they run is."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from taskplace.spark import sending
from taskplace.spark.sending import Sending

LARGE = 2 << 20


class FakeBroadcast:
    """What `SparkContext.broadcast` gives; `there` are those that were not destroyed."""

    there: list[FakeBroadcast] = []  # noqa: RUF012

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.there.append(self)

    def destroy(self) -> None:
        self.there.remove(self)


@pytest.fixture
def there(monkeypatch) -> list[FakeBroadcast]:
    monkeypatch.setattr(FakeBroadcast, "there", [])
    return FakeBroadcast.there


@pytest.fixture
def made(there) -> Sending:
    return Sending(SimpleNamespace(broadcast=FakeBroadcast))


class Large:
    def __init__(self, size: int = LARGE) -> None:
        self.pad = os.urandom(size)


def test_a_value_that_stays_the_same_is_sent_once(made, there):
    value, other = Large(), Large()
    sent = [made.keep("program", value) for _ in range(100)]
    assert len(there) == 1 and all(one is sent[0] for one in sent)
    made.keep("another", value)
    assert len(there) == 2
    made.keep("program", other)  # instead of the one before
    assert len(there) == 2
    made.close()
    assert there == []
    assert made.keep("program", value).to(lambda v, x: (len(v.pad), x))(3) == (LARGE, 3)
    assert len(there) == 1


def test_each_task_gets_a_value_of_its_own(made):
    value: list[int] = []
    use = made.keep("v", value).to(lambda found, more: found.append(more) or found)
    assert use(1) == [1] and use(2) == [2] and value == []


def test_a_large_function_goes_apart_and_a_small_one_as_it_is(made, there):
    small = partial(sum, start=1)
    assert made.lighten(small) == (small, None)
    light, sent = made.lighten(partial(lambda pad, elements: len(pad) + sum(elements), bytes(LARGE)))
    assert len(sending._pickled(partial(light.func, light.args[0]))) < sending.LARGE
    assert light([1, 2]) == LARGE + 3
    assert sent is not None and len(there) == 1
    sent.destroy()
    assert there == []
    sent.destroy()  # twice, or after the session: nothing happens


def answer(pad: bytes, elements):
    for element in elements:
        yield f"{len(pad)} {bytes(element).decode()}"


@pytest.mark.everyday("Costs that do not grow")
def test_no_file_is_left_on_the_driver_by_jobs_of_any_size(cluster):
    from taskplace.spark.bridge import Bridge

    bridge, sc = Bridge(cluster), cluster.sparkContext
    folder = Path(sc._temp_dir)
    before = set(folder.iterdir())
    program = Large()
    for number in range(5):
        attempts = bridge.keep("program", program).to(lambda found, elements: answer(found.pad, elements))
        assert bridge.run(bridge.pinned([b"a"], [None], attempts), [0], tag=f"kept-{number}") == [
            f"{LARGE} a"
        ]
        large = partial(answer, os.urandom(LARGE))
        assert bridge.run(bridge.pinned([b"b"], [None], large), [0], tag=f"large-{number}") == [f"{LARGE} b"]
        assert len(set(folder.iterdir()) - before) <= 1, "one, for the program"
    bridge.close()
    assert set(folder.iterdir()) <= before
