"""Random groups of consumers, and their best assignments by brute force."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
from msgspec.structs import replace

from taskplace.groups.copartitioned import copartitioned
from taskplace.groups.partitions import Member, PartitionAssignment, Subscriptions, TopicPartition

CASES = Path(__file__).parents[1] / "groups" / "cases"


def table(name: str) -> list[list[str]]:
    """Return the rows of a table in tests/groups/cases, without its head."""
    lines = (CASES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[1:]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def counts(text: str) -> dict[str, int]:
    """Return the partition counts that a table writes as "t:3 u:2"."""
    return {topic: int(count) for topic, _, count in (word.partition(":") for word in text.split())}


def named(text: str) -> dict[str, str]:
    """Return what a table writes as "A: t u; B: t", by name and sorted."""
    cells = (part.strip().partition(":") for part in text.split(";"))
    return dict(sorted((name, what.strip()) for name, _, what in cells))


def parts(words: str) -> list[tuple[str, int]]:
    """Return partitions written as "tp0 up1"."""
    return [(word.rpartition("p")[0], int(word.rpartition("p")[2])) for word in words.split()]


def document(s: Subscriptions) -> dict[str, Any]:
    """Return the "taskplace.subscriptions/1" dict of subscriptions."""
    out: dict[str, Any] = msgspec.to_builtins(s)
    racks = out.pop("racks")
    for member in out["members"].values():
        del member["metadata"]
    out["topics"] = {
        t: {"partitions": n, "racks": racks[t]} if t in racks else n for t, n in s.topics.items()
    }
    return json.loads(json.dumps(out))  # type: ignore[no-any-return]


def together(s: Subscriptions, replicas: int = 0, seed: int = 0) -> PartitionAssignment:
    return copartitioned(replace(s, replicas=replicas, seed=seed))


def group(topics: Mapping[str, int], **members: str | Iterable[str]) -> Subscriptions:
    """Return subscriptions of members without partitions: group({"t0": 2}, C0="t0 t1")."""
    return Subscriptions(
        topics, {n: Member(t.split() if isinstance(t, str) else tuple(t)) for n, t in members.items()}
    )


def text(held: Iterable[TopicPartition]) -> str:
    """Return partitions as the KIP writes them: "t0p0 t1p1"."""
    return " ".join(f"{tp.topic}p{tp.partition}" for tp in sorted(held))


def tables(assignment: Mapping[str, Iterable[TopicPartition]]) -> dict[str, str]:
    return {name: text(held) for name, held in assignment.items()}


@st.composite
def subscriptions(
    draw: st.DrawFn,
    *,
    most: int = 6,
    members: int = 4,
    topics: int = 3,
    equal: bool = False,
    racks: bool = False,
    clean: bool = False,
) -> Subscriptions:
    """Draw subscriptions of at most `most` partitions. Unless `clean`, claims may be stale, wrong or contradictory."""
    names = [f"t{k}" for k in range(draw(st.integers(1, topics)))]
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = draw(st.integers(0, most - sum(counts.values())))
    who = [f"C{k}" for k in range(draw(st.integers(1, members)))]
    same = draw(st.sets(st.sampled_from(names)))
    zones = st.sampled_from(["a", "b", None]) if racks else st.none()
    heard = {n: same if equal else draw(st.sets(st.sampled_from(names))) for n in who}
    owned: dict[str, list[tuple[str, int]]] = {n: [] for n in who}
    if clean:
        for pair in ((t, p) for t, n in counts.items() for p in range(n)):
            at = draw(st.sampled_from([None, *who]))
            if at is not None and pair[0] in heard[at]:
                owned[at].append(pair)
    else:
        pairs = st.tuples(st.sampled_from([*names, "gone"]), st.integers(0, max(counts.values())))
        for n in who:
            owned[n] = draw(st.lists(pairs, max_size=most))
    return Subscriptions(
        counts,
        {n: Member(heard[n], owned[n], -1 if clean else draw(st.integers(-1, 2)), draw(zones)) for n in who},
        {t: [draw(st.sets(st.sampled_from("abc"))) for _ in range(counts[t])] for t in names}
        if racks
        else {},
    )


def claims(s: Subscriptions) -> dict[TopicPartition, str]:
    """Return the owners: the members whose claims count, computed directly from the rule."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for name, member in s.members.items():
        for tp in {TopicPartition(*pair) for pair in member.owned}:
            if tp.partition < s.topics.get(tp.topic, 0):
                found.setdefault(tp, []).append((member.generation, name))
    out = {}
    for tp, claim in found.items():
        newest = [name for generation, name in claim if generation == max(claim)[0]]
        if len(newest) == 1:
            out[tp] = newest[0]
    return out


def misses(s: Subscriptions, tp: TopicPartition, name: str) -> bool:
    rack = s.members[name].rack
    known = s.racks[tp.topic][tp.partition] if tp.topic in s.racks else ()
    return rack is not None and bool(known) and rack not in known


def everything(s: Subscriptions) -> Iterator[dict[TopicPartition, str]]:
    """Yield every possible complete assignment."""
    wanted = {
        TopicPartition(t, p): [n for n, m in s.members.items() if t in m.topics]
        for t, count in s.topics.items()
        for p in range(count)
    }
    wanted = {tp: who for tp, who in wanted.items() if who}
    for choice in itertools.product(*wanted.values()):
        yield dict(zip(wanted, choice, strict=True))


def figures(s: Subscriptions, home: Mapping[TopicPartition, str]) -> tuple[int, int, int]:
    """Return the balance score, moves and rack misses of an assignment, from their definitions."""
    loads = [sum(name == n for name in home.values()) for n in s.members]
    score = sum(abs(a - b) for a, b in itertools.combinations(loads, 2))
    moved = sum(home.get(tp) != name for tp, name in claims(s).items())
    return score, moved, sum(misses(s, tp, name) for tp, name in home.items())


def home_of(assignment: Mapping[str, Iterable[TopicPartition]]) -> dict[TopicPartition, str]:
    return {tp: name for name, held in assignment.items() for tp in held}


def previous(s: Subscriptions) -> dict[TopicPartition, str]:
    """Return the previous owners, directly from the rule.

    Of the subscribers' claims that are older than the newest, the only one of the newest generation counts.
    """
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for name, member in s.members.items():
        for tp in {TopicPartition(*pair) for pair in member.owned}:
            if tp.partition < s.topics.get(tp.topic, 0):
                found.setdefault(tp, []).append((member.generation, name))
    out = {}
    for tp, claim in found.items():
        older = [(g, n) for g, n in claim if g < max(claim)[0] and tp.topic in s.members[n].topics]
        newest = [name for generation, name in older if generation == max(older)[0]]
        if len(newest) == 1:
            out[tp] = newest[0]
    return out


def racks_matter(s: Subscriptions) -> bool:
    """Return whether Kafka would consider racks, directly from the rule."""
    heard = {t for m in s.members.values() for t in m.topics}
    known = [set(s.racks[t][p]) if t in s.racks else set() for t in heard for p in range(s.topics.get(t, 0))]
    everywhere = set().union(*known)
    return bool(everywhere & {m.rack for m in s.members.values()}) and any(r != everywhere for r in known)


def levels(
    s: Subscriptions, home: Mapping[TopicPartition, str], *, racks_first: bool = False
) -> tuple[int, ...]:
    """Return the figures of an assignment in the order of their priority. Lower is better for each."""
    score, moved, missed = figures(s, home)
    owner = claims(s)
    returned = sum(home.get(tp) == name and owner.get(tp) != name for tp, name in previous(s).items())
    if racks_first and racks_matter(s):
        return score, missed, moved, -returned
    return score, moved, missed, -returned
