"""How far a simulation has come."""

from __future__ import annotations

import pytest

from taskplace.errors import InputError
from taskplace.simulation import replay, simulate

PROBLEM = {
    "tasks": [{"id": f"0_{k}", "end_offset": 50_000} for k in range(12)],
    "instances": [{"id": "a"}, {"id": "b"}],
    "config": {"max.warmup.replicas": 1},
}
EVENTS = [[{"kind": "add", "name": "c"}], [{"kind": "kill", "name": "a"}]]


@pytest.fixture(autouse=True)
def each_round(monkeypatch):
    monkeypatch.setattr("taskplace.model.work.LEAST_SECONDS", 0.0)


def test_groups_and_parts_of_them(monkeypatch):
    shown = []
    found = simulate(PROBLEM, EVENTS, progress=shown.append)
    first, *rounds, last = shown
    assert (first.name, first.unit, first.done, first.total) == ("simulating", "groups of events", 0, 3)
    assert (last.done, last.ended) == (3, True)
    assert len(rounds) == len(found.rounds)
    assert [event.done for event in rounds] == sorted(event.done for event in rounds)
    parts = [event.done - 1 for event in rounds if 1 <= event.done < 2]
    assert len(parts) > 3 and len(set(parts)) > 3  # one warm-up at a time: the group goes on bit by bit
    assert rounds[-1].detail.startswith("round ")
    assert simulate(PROBLEM, EVENTS) == found

    again = []
    replay(found.to_json(), progress=again.append)
    assert [event.done for event in again] == [event.done for event in shown]


def test_an_error_of_the_function_ends_the_simulation():
    def stop(event):
        if event.done >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(PROBLEM, EVENTS, progress=stop)


def test_a_wrong_function_is_refused():
    with pytest.raises(InputError, match="progress: found"):
        simulate(PROBLEM, progress=lambda: None)
    with pytest.raises(InputError, match="progress: found 'bar'"):
        simulate(PROBLEM, progress="bar")
