"""Who had which tasks when."""

from __future__ import annotations

from kafka_streams.placements import Placements


def placed(standbys=0, **instances):
    """Return placements of four tasks: by instance, the active and the followed ones."""
    placements = Placements(partitions=4, standbys=standbys)
    for name, (active, followed) in instances.items():
        placements.take(1.0, name, active, followed)
    return placements


def test_balanced_is_every_task_once_and_even_numbers():
    assert placed(a=([0, 1], []), b=([2, 3], [])).balanced({"a", "b"})
    assert not placed(a=([0, 1, 2], []), b=([3], [])).balanced({"a", "b"})
    assert not placed(a=([0, 1], []), b=([2], [])).balanced({"a", "b"})  # nobody has 3
    assert not placed(a=([0, 1], []), b=([1, 2], [])).balanced({"a", "b"})  # two have 1, nobody has 3
    assert not placed().balanced(set())


def test_settled_is_every_standby_and_no_warmup():
    even = {"a": ([0, 1], [2, 3]), "b": ([2, 3], [0, 1])}
    assert placed(1, **even).settled({"a", "b"})
    assert not placed(0, **even).settled({"a", "b"})  # copies that are warmed up, or not needed
    assert not placed(1, a=([0, 1], [2, 3]), b=([2, 3], [0])).settled({"a", "b"})
    assert not placed(1, a=([0, 1, 2], [3]), b=([3], [0, 1, 2])).settled({"a", "b"})


def test_a_move_is_a_task_that_is_active_elsewhere_whoever_had_it_in_between():
    placements = placed(a=([0, 1, 2, 3], []))
    placements.take(3.0, "b", [3])
    placements.take(2.0, "a", [0, 1])  # 2 and 3 are with nobody
    placements.take(4.0, "a", [0, 1, 2])  # 2 is back
    assert placements.moves(since=1.5) == 1
    placements.take(5.0, "b", [2, 3])
    assert placements.moves(since=1.5) == 2
    assert placements.moves(since=4.5) == 1
