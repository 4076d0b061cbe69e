"""Chooses the protocol, the leader and the sub-group of a group.

Each choice is a function of its arguments alone, so all members make the same choice.

Source: "JoinGroup Response", "Single Client Assignor" and "Dropping Topic Lists" in the proposal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Pair = tuple[str, int]  # a protocol's name and version
K = TypeVar("K", bound=Hashable)


def supported_by_all(preferences: Iterable[Sequence[Pair]]) -> list[Pair]:
    """Return the protocols that are in every list, in the order of the first list.

    >>> supported_by_all([[("range", 1), ("range", 0)], [("range", 0)]])
    [('range', 0)]
    """
    lists = [list(dict.fromkeys(listed)) for listed in preferences]
    if not lists:
        return []
    common = set(lists[0]).intersection(*lists[1:])
    return [pair for pair in lists[0] if pair in common]


def choose_protocol(preferences: Sequence[Sequence[Pair]], seed: str) -> Pair | None:
    """Return the protocol that the group uses, or None if no protocol is supported by all members.

    - A protocol that *every* member ranks below another common protocol is never chosen. So if all members prefer the
      same protocol, it is chosen.
    - Otherwise one of the remaining protocols is drawn. The draw depends only on `seed` and the candidates, so every
      rebalance and every coordinator draws the same one.

    Work: members x protocols squared.

    >>> choose_protocol([[("sticky", 0), ("range", 0)], [("sticky", 0), ("range", 0)]], "orders")
    ('sticky', 0)
    >>> choose_protocol([[("sticky", 0)], [("range", 0)]], "orders") is None
    True
    """
    common = supported_by_all(preferences)
    if not common:
        return None
    # Most members have the same list: handle each distinct list once.
    orders = {tuple(pair for pair in dict.fromkeys(listed) if pair in common) for listed in preferences}
    places = [{pair: k for k, pair in enumerate(order)} for order in orders]
    wanted = sorted(
        pair
        for pair in common
        if not any(all(place[other] < place[pair] for place in places) for other in common)
    )
    return drawn(wanted, seed)


def drawn(candidates: Sequence[K], seed: str) -> K:
    """Return one of the candidates, chosen by a hash of all candidates and `seed`: the same in every process."""
    digest = hashlib.sha256(repr((seed, list(candidates))).encode()).digest()
    return candidates[int.from_bytes(digest[:8], "big") % len(candidates)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible leader: its name, the newest metadata version that it knows, and its rank in the order of joining."""

    name: str
    newest: int
    order: int


LeaderRule = Callable[[Sequence[Candidate]], str]


def newest_then_latest(candidates: Sequence[Candidate]) -> str:
    """Return the leader by the proposal's heuristics: the newest metadata version, then the latest to join.

    A member with the newest version can read the metadata of all others. The latest to join is the least likely to have
    gone already.

    >>> newest_then_latest([Candidate("a", 1, 0), Candidate("b", 2, 1), Candidate("c", 2, 2), Candidate("d", 1, 3)])
    'c'
    """
    return max(candidates, key=lambda c: (c.newest, c.order, c.name)).name


def always(name: str) -> LeaderRule:
    """Return the rule that the member `name` leads. Without that member, `newest_then_latest` decides.

    >>> always("driver")([Candidate("worker-1", 9, 1), Candidate("driver", 0, 0)])
    'driver'
    """

    def rule(candidates: Sequence[Candidate]) -> str:
        return name if any(c.name == name for c in candidates) else newest_then_latest(candidates)

    return rule


def largest_matching(hashes: Mapping[str, bytes]) -> frozenset[str]:
    """Return the members of the largest sub-group with equal subscription hashes. The other members are dormant.

    The smallest hash breaks ties. It depends on the subscription and not on member names, so a restart under another
    name does not change the result.

    >>> sorted(largest_matching({"A": b"foo", "B": b"foo", "C": b"foo,bar"}))
    ['A', 'B']
    >>> sorted(largest_matching({"A": b"foo", "B": b"bar"}))
    ['B']
    """
    if not hashes:
        return frozenset()
    counts = Counter(hashes.values())
    winner = min(counts, key=lambda digest: (-counts[digest], digest))
    return frozenset(name for name, digest in hashes.items() if digest == winner)


def in_step(views: Mapping[str, tuple[Hashable, bytes]]) -> frozenset[str]:
    """Return the members whose metadata hash is the most frequent one among members with the same subscription.

    `views`: member -> (subscription, metadata hash). Hashes of different subscriptions cannot be compared,
    so each subscription is handled separately. The smallest hash breaks ties.

    >>> sorted(in_step({"A": ("t", b"new"), "B": ("t", b"new"), "C": ("t", b"old"), "D": ("u", b"one")}))
    ['A', 'B', 'D']
    """
    by_subscription: dict[Hashable, dict[str, bytes]] = {}
    for name, (subscription, seen) in views.items():
        by_subscription.setdefault(subscription, {})[name] = seen
    return frozenset().union(*(largest_matching(hashes) for hashes in by_subscription.values()))
