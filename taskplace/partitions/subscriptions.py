"""The input of a partition assignor: topics, and members with their subscriptions and owned partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.subscriptions import NO_GENERATION as NO_GENERATION
from taskplace.groups.subscriptions import Member as Member
from taskplace.groups.subscriptions import Pair as Pair
from taskplace.groups.subscriptions import topic_partitions

if TYPE_CHECKING:
    from taskplace.groups.subscriptions import Columns

SCHEMA = "taskplace.subscriptions/1"
RACK_PRIORITIES = ("stickiness", "racks")
MOST_PARTITIONS = 10_000_000
"""The most partitions of all topics together: a hundred times the largest benchmark."""


@dataclass(frozen=True)
class Subscriptions:
    """The members of a group, and the topics with their partition counts.

    - `topics`: the partition count of each topic
    - `members`: the `Member` of each name
    - `global_topics`: topics of which every subscriber holds all partitions, active or standby, regardless of
      `replicas` (Faust's global tables). Only `copartitioned` uses it
    - `racks`: per topic and partition, the racks of the replicas (optional)
    - `assignor`, `cooperative`: the mode, unless the caller of `assign_partitions` overrides it
    - `replicas`, `seed`: standbys per partition, and the seed of their spread. Only `copartitioned` uses them
    - `rack_priority`: the criterion of `fair_sticky` after balance. With "stickiness", no partition moves because of
      its rack. With "racks", partitions move to members in a rack of their replicas. None means "racks" if the assignor
      has Kafka's name, "sticky" or "cooperative-sticky", as in Kafka; otherwise it means "stickiness"

    Properties: a subscribed topic need not exist; the assignment then has a warning. Owned partitions that no longer
    exist are ignored. The order of members, topics and partitions does not matter.

    Errors: `InputError` if there are no members, two of them have one `instance_id`, a count is bad, there are more
    than `MOST_PARTITIONS` partitions, racks do not match a count, or a global topic does not exist. An owned partition
    that is not a pair is reported when it is used.

    >>> s = Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topics": ["t0"], "owned": [["t0", 0]]}}})
    >>> s.members["C0"].topics
    ('t0',)
    >>> Subscriptions.from_dict(s.to_dict()) == s
    True
    """

    topics: Mapping[str, int]
    members: Mapping[str, Member]
    global_topics: Sequence[str] = field(default=(), kw_only=True)
    racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    assignor: str = "fair_sticky"
    cooperative: bool = False
    replicas: int = 0
    seed: int = 0
    rack_priority: str | None = None

    def __post_init__(self) -> None:
        for part in ("topics", "members", "racks"):
            validation.mapping(getattr(self, part), part)
        if not self.members:
            raise InputError("members", found="no member", expected="at least one")
        validation.text(self.assignor, "assignor")
        validation.boolean(self.cooperative, "cooperative")
        check_rack_priority(self.rack_priority)
        for topic, count in self.topics.items():
            validation.text(topic, "topics")
            validation.integer(count, f"topics.{topic}", most=MOST_PARTITIONS)
        if sum(self.topics.values()) > MOST_PARTITIONS:
            total = sum(self.topics.values())
            raise InputError("topics", found=total, expected=f"at most {MOST_PARTITIONS} partitions in all")
        static: dict[str, str] = {}
        for name, member in self.members.items():
            validation.text(name, "members")
            if not isinstance(member, Member):
                raise InputError(f"members.{name}", found=member, expected="a Member")
            instance = member.instance_id
            if instance is not None and (other := static.setdefault(instance, name)) != name:
                raise InputError(
                    f"members.{name}.instance_id",
                    found=f"{instance}, also that of member {other!r}",
                    expected="another id: a group fences the earlier of two members with one (FENCED_INSTANCE_ID)",
                )
        for topic, racks in self.racks.items():
            if topic not in self.topics:
                hint = validation.nearest(topic, self.topics)
                raise InputError(
                    f"racks.{topic}", found=topic, expected="a topic with a partition count", hint=hint
                )
            if len(racks) != self.topics[topic]:
                raise InputError(
                    f"topics.{topic}.racks",
                    found=f"{len(racks)} lists",
                    expected=f"one for each of the {self.topics[topic]} partitions",
                )
        validation.integer(self.replicas, "replicas")
        validation.integer(self.seed, "seed")
        if isinstance(self.global_topics, str) or not isinstance(self.global_topics, Iterable):
            raise InputError("global_topics", found=self.global_topics, expected="a list of topics")
        for k, topic in enumerate(self.global_topics):
            if validation.text(topic, f"global_topics[{k}]") not in self.topics:
                hint = validation.nearest(topic, self.topics)
                expected = "a topic with a partition count"
                raise InputError(f"global_topics[{k}]", found=topic, expected=expected, hint=hint)
        set_ = object.__setattr__
        set_(self, "topics", dict(sorted(self.topics.items())))
        set_(self, "members", dict(sorted(self.members.items())))
        racks_ = {t: tuple(tuple(sorted(set(r))) for r in rs) for t, rs in sorted(self.racks.items())}
        set_(self, "racks", racks_)
        set_(self, "global_topics", tuple(sorted(set(self.global_topics))))

    @cached_property
    def columns(self) -> Columns:
        """The subscriptions as numpy columns; computed once."""
        from taskplace.groups import (
            subscriptions as subscription_columns,  # imported late, because it needs numpy
        )

        return subscription_columns.build(self.topics, self.members, self.racks)

    @property
    def urls(self) -> dict[str, str]:
        """The URL of every member that reported one."""
        return {name: m.url for name, m in self.members.items() if m.url is not None}

    def owning(
        self,
        assignment: Mapping[str, Iterable[Pair]],
        *,
        standby: Mapping[str, Iterable[Pair]] | None = None,
        generation: int = NO_GENERATION,
    ) -> Subscriptions:
        """Return the input for the next assignment: the same subscriptions, in which members own their `assignment`.

        >>> s = Subscriptions({"t": 1}, {"C0": Member(["t"])})
        >>> s.owning({"C0": [("t", 0)]}).members["C0"].owned
        (TopicPartition(topic='t', partition=0),)
        """
        copies = standby or {}
        members = {
            name: replace(
                member,
                owned=tuple(assignment.get(name, ())),
                standby=tuple(copies.get(name, ())),
                generation=generation,
            )
            for name, member in self.members.items()
        }
        return replace(self, members=members)

    def to_dict(self) -> dict[str, Any]:
        """Return the subscriptions as a "taskplace.subscriptions/1" dict. Default values are left out."""
        topics = {
            t: {"partitions": n, "racks": [list(r) for r in self.racks[t]]} if t in self.racks else n
            for t, n in self.topics.items()
        }
        out: dict[str, Any] = {"schema": SCHEMA, "assignor": self.assignor}
        out |= {"global_topics": list(self.global_topics)} if self.global_topics else {}
        out |= {"cooperative": True} if self.cooperative else {}
        out |= {"replicas": self.replicas} if self.replicas else {}
        out |= {"seed": self.seed} if self.seed else {}
        out |= {"rack_priority": self.rack_priority} if self.rack_priority is not None else {}
        return {**out, "topics": topics, "members": {n: _member_dict(m) for n, m in self.members.items()}}

    @classmethod
    def from_dict(cls, value: Any) -> Subscriptions:
        """Return the subscriptions that a "taskplace.subscriptions/1" dict describes.

        >>> Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topic": ["t0"]}}})
        Traceback (most recent call last):
        taskplace.errors.InputError: members.C0.topic: found 'topic', expected one of topics, owned, generation, \
rack, instance_id, standby, url; did you mean 'topics'?
        """
        known = (
            "schema",
            "global_topics",
            "assignor",
            "cooperative",
            "replicas",
            "seed",
            "rack_priority",
            "topics",
            "members",
        )
        top = validation.mapping(value, "subscriptions", known)
        if top.get("schema", SCHEMA) != SCHEMA:
            raise InputError("schema", found=top["schema"], expected=f"'{SCHEMA}'")
        for key in ("topics", "members"):
            if key not in top:
                raise InputError(key, found=None, expected="an object")
        counts, racks = {}, {}
        for topic, spec in validation.mapping(top["topics"], "topics").items():
            path = f"topics.{topic}"
            if isinstance(spec, Mapping):
                inner = validation.mapping(spec, path, ("partitions", "racks"))
                if "partitions" not in inner:
                    raise InputError(f"{path}.partitions", found=None, expected="an integer of at least 0")
                if "racks" in inner:
                    racks[topic] = _read_racks(inner["racks"], f"{path}.racks")
                path, spec = f"{path}.partitions", inner["partitions"]
            counts[topic] = validation.integer(spec, path, most=MOST_PARTITIONS) or 0
        members = validation.mapping(top["members"], "members")
        return cls(
            topics=counts,
            members={name: _read_member(m, f"members.{name}") for name, m in members.items()},
            racks=racks,
            assignor=validation.text(top.get("assignor", "fair_sticky"), "assignor"),
            cooperative=validation.boolean(top.get("cooperative", False), "cooperative"),
            replicas=validation.integer(top.get("replicas", 0), "replicas") or 0,
            seed=validation.integer(top.get("seed", 0), "seed") or 0,
            rack_priority=check_rack_priority(top.get("rack_priority")),
            global_topics=tuple(validation.listing(top.get("global_topics", ()), "global_topics")),
        )

    @classmethod
    def from_json(cls, text: str) -> Subscriptions:
        """Return the subscriptions that a JSON text describes."""
        validation.text(text, "subscriptions")
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            where = f"subscriptions:{error.lineno}:{error.colno}"
            raise InputError(where, found=error.msg, expected="a JSON document") from None


def check_rack_priority(value: Any) -> str | None:
    """Return the value if it is a rack priority, or None.

    >>> check_rack_priority("rack")
    Traceback (most recent call last):
    taskplace.errors.InputError: rack_priority: found 'rack', expected one of stickiness, racks; did you mean 'racks'?
    """
    if value is None:
        return None
    if not isinstance(value, str) or value not in RACK_PRIORITIES:
        hint = validation.nearest(value, RACK_PRIORITIES) if isinstance(value, str) else ""
        expected = "one of " + ", ".join(RACK_PRIORITIES)
        raise InputError("rack_priority", found=value, expected=expected, hint=hint)
    return value


_MEMBER_KEYS = ("topics", "owned", "generation", "rack", "instance_id", "standby", "url")


def _read_member(value: Any, path: str) -> Member:
    m = validation.mapping(value, path, _MEMBER_KEYS)
    topics = validation.listing(m.get("topics", ()), f"{path}.topics")
    names = [validation.text(t, f"{path}.topics[{k}]") for k, t in enumerate(topics)]
    pairs = {
        key: topic_partitions(validation.listing(m.get(key, ()), f"{path}.{key}"), f"{path}.{key}")
        for key in ("owned", "standby")
    }
    rack, instance, url = (
        None if m.get(key) is None else validation.text(m[key], f"{path}.{key}")
        for key in ("rack", "instance_id", "url")
    )
    generation = validation.integer(m.get("generation", NO_GENERATION), f"{path}.generation", NO_GENERATION)
    return Member(
        topics=names,
        owned=pairs["owned"],
        generation=NO_GENERATION if generation is None else generation,
        rack=rack,
        instance_id=instance,
        standby=pairs["standby"],
        url=url,
    )


def _read_racks(value: Any, path: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(validation.text(r, f"{path}[{k}]") for r in validation.listing(rs, f"{path}[{k}]"))
        for k, rs in enumerate(validation.listing(value, path))
    )


def _member_dict(member: Member) -> dict[str, Any]:
    out: dict[str, Any] = {
        "topics": list(member.topics),
        "owned": [list(p) for p in sorted(member.owned)],
    }
    if member.generation != NO_GENERATION:
        out["generation"] = member.generation
    for key in ("rack", "instance_id", "url"):
        if getattr(member, key) is not None:
            out[key] = getattr(member, key)
    if member.standby:
        out["standby"] = [list(p) for p in sorted(member.standby)]
    return out
