"""The choices of a group: the protocol, the leader, the sub-group.

Each is a function of its arguments alone, so all members make the same choice.

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
    """Return the protocols in every list, in the order of the first.

    >>> supported_by_all([[("range", 1), ("range", 0)], [("range", 0)]])
    [('range', 0)]
    """
    lists = [list(dict.fromkeys(listed)) for listed in preferences]
    if not lists:
        return []
    common = set(lists[0]).intersection(*lists[1:])
    return [pair for pair in lists[0] if pair in common]


def choose_protocol(preferences: Sequence[Sequence[Pair]], seed: str) -> Pair | None:
    """Return the protocol that a group uses: supported by all and preferred; None if nothing is common.

    - What *every* member lists behind another common protocol is never chosen, so if all agree on the first, that
      one is.
    - If they do not agree, one of the rest is drawn. The draw depends on `seed` and on the candidates, so it stays
      the same from one rebalance to the next, whoever draws.

    Work: members x protocols squared.

    >>> choose_protocol([[("sticky", 0), ("range", 0)], [("sticky", 0), ("range", 0)]], "orders")
    ('sticky', 0)
    >>> choose_protocol([[("sticky", 0)], [("range", 0)]], "orders") is None
    True
    """
    common = supported_by_all(preferences)
    if not common:
        return None
    # Members of a group mostly say the same: what differs is looked at once.
    orders = {tuple(pair for pair in dict.fromkeys(listed) if pair in common) for listed in preferences}
    places = [{pair: k for k, pair in enumerate(order)} for order in orders]
    wanted = sorted(
        pair
        for pair in common
        if not any(all(place[other] < place[pair] for place in places) for other in common)
    )
    return drawn(wanted, seed)


def drawn(candidates: Sequence[K], seed: str) -> K:
    """Return one of the candidates by a hash of them and of `seed`: the same everywhere, and in every run."""
    digest = hashlib.sha256(repr((seed, list(candidates))).encode()).digest()
    return candidates[int.from_bytes(digest[:8], "big") % len(candidates)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that could lead: its name, the newest metadata version it knows, its place in the order of
    joining."""

    name: str
    newest: int
    order: int


LeaderRule = Callable[[Sequence[Candidate]], str]


def newest_then_latest(candidates: Sequence[Candidate]) -> str:
    """Return who leads by the text's heuristics: the newest metadata version; among those, the latest to join.

    The newest can read what all others wrote; the latest to join is the least likely to be gone already.

    >>> newest_then_latest([Candidate("a", 1, 0), Candidate("b", 2, 1), Candidate("c", 2, 2), Candidate("d", 1, 3)])
    'c'
    """
    return max(candidates, key=lambda c: (c.newest, c.order, c.name)).name


def always(name: str) -> LeaderRule:
    """Return the rule that one member leads whenever it is there, and the text's heuristics when it is not.

    >>> always("driver")([Candidate("worker-1", 9, 1), Candidate("driver", 0, 0)])
    'driver'
    """

    def rule(candidates: Sequence[Candidate]) -> str:
        return name if any(c.name == name for c in candidates) else newest_then_latest(candidates)

    return rule


def largest_matching(hashes: Mapping[str, bytes]) -> frozenset[str]:
    """Return the members of the largest sub-group with one subscription hash; the others are dormant.

    The tie-break is the smallest hash: it depends on what is subscribed to and not on who is called what, so a
    restart under another name does not flip it.

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


def in_step(said: Mapping[str, tuple[Hashable, bytes]]) -> frozenset[str]:
    """Return the members that see what most members with their subscription see; the others are the odd ones.

    `said` is the subscription and the metadata hash of each. Every subscription is judged by itself, since hashes
    of different topics cannot be compared; the tie-break is the smallest hash.

    >>> sorted(in_step({"A": ("t", b"new"), "B": ("t", b"new"), "C": ("t", b"old"), "D": ("u", b"one")}))
    ['A', 'B', 'D']
    """
    by_subscription: dict[Hashable, dict[str, bytes]] = {}
    for name, (subscription, seen) in said.items():
        by_subscription.setdefault(subscription, {})[name] = seen
    return frozenset().union(*(largest_matching(hashes) for hashes in by_subscription.values()))
