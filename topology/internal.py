"""Plans the internal topics of a topology: repartition topics and changelogs.

**Idea.** The needed topics are computed, not created. The plan can be printed, and compared with the existing topics.

Properties: a changelog has one partition per task of its subtopology. A repartition topic has the count that
`topology.partitions` determines. The clean-up policy is "delete" for repartitions, "compact" for changelogs, and
"compact,delete" for changelogs of stores with expiry (`retention_ms`), as in Kafka Streams. External topics and the
topics of sinks are never reported as unneeded, for any name.

Errors: `TopologyError` with the topic, for a wrong description of existing topics.

Non-goals: creating topics; finding the application of a topic whose name only looks like an internal one.

Source: Kafka Streams' internal topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from topology.errors import TopologyError, TopologyNotReady, nearest
from topology.names import check_count, is_legal_name
from topology.shown import shown

if TYPE_CHECKING:
    from topology.view import TopologyView

_ENDS = ("-repartition", "-changelog")
_FIELDS = ("partitions", "cleanup.policy")
_POLICIES = ("compact", "delete")  # Kafka's value is a list: one of them, or both in any order


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One internal topic.

    - `owner`: the name of the repartition node or of the store
    - `retention_ms`: None if records do not expire
    """

    name: str
    kind: Literal["repartition", "changelog"]
    owner: str
    partitions: int
    cleanup_policy: Literal["delete", "compact", "compact,delete"]
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """All internal topics of a topology, sorted by name. `str()` is a table.

    `others`: the topics of sources and sinks.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> by_tail = topo.source("flights", partitions=2).repartition("tailnum", name="by-tail")
    >>> _ = by_tail.process(name="stats", stores=[{"name": "delays", "retention_ms": 1000}])
    >>> plan = topo.build().internal_topics()
    >>> print(plan)
    topic                partitions  cleanup.policy  retention.ms
    by-tail-repartition           2  delete          -1
    delays-changelog              2  compact,delete  1000
    >>> print(plan.compare({"by-tail-repartition": 3, "old-changelog": 2, "flights": 2}))
    create: delays-changelog (2 partitions)
    differs: by-tail-repartition (3 partitions, expected 2)
    unneeded, if no other application's: old-changelog
    """

    topics: tuple[InternalTopic, ...]
    others: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[InternalTopic]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)

    def __str__(self) -> str:
        wide = max([len("topic"), *(len(t.name) for t in self.topics)])
        lines = [f"{'topic':<{wide}}  partitions  cleanup.policy  retention.ms"]
        for t in self.topics:
            kept = -1 if t.retention_ms is None else t.retention_ms
            lines.append(f"{t.name:<{wide}}  {t.partitions:>10}  {t.cleanup_policy:<14}  {kept}")
        return "\n".join(lines)

    def compare(self, existing: Mapping[str, int | Mapping[str, Any]], *, prefix: str = "") -> TopicChanges:
        """Compare the plan with existing topics, and return the changes that are needed.

        An existing topic is given by its partition count, or as Kafka describes it:
        `{"partitions": 4, "cleanup.policy": "compact"}`. A missing policy is not compared. `prefix`: the beginning of
        the names in Kafka (Kafka Streams puts the application's id and "-" before all internal topics). With a prefix,
        only topics with it may be unneeded. Without one, every topic with the form of an internal name may be unneeded,
        although it may belong to another application.

        >>> found = {"delays-changelog": {"partitions": 2, "cleanup.policy": "delete"}}
        >>> changelog = InternalTopic("delays-changelog", "changelog", "delays", 2, "compact")
        >>> print(InternalTopics((changelog,)).compare(found))
        differs: delays-changelog (cleanup.policy delete, expected compact)
        """
        if not isinstance(prefix, str):
            raise TopologyError(f"prefix: found {shown(prefix)}, expected a string")
        if not isinstance(existing, Mapping):
            raise TopologyError(f"existing: found {shown(existing)}, expected a mapping of topics to counts")
        known = {name: _existing(name, what) for name, what in existing.items()}
        needed = {prefix + t.name: replace(t, name=prefix + t.name) for t in self.topics}
        there = [(t, *known[name]) for name, t in needed.items() if name in known]
        return TopicChanges(
            create=tuple(t for name, t in needed.items() if name not in known),
            differ=tuple((t, count) for t, count, _ in there if count != t.partitions),
            policies=tuple(
                (t, policy)
                for t, _, policy in there
                if policy and policy != frozenset(t.cleanup_policy.split(","))
            ),
            unneeded=tuple(
                sorted(
                    name
                    for name in known
                    if name not in needed and name not in self.others and _of_our_form(name, prefix)
                )
            ),
            owned=bool(prefix),
        )


def _existing(name: object, what: Any) -> tuple[int, frozenset[str]]:
    """Return the count and the policies of an existing topic. Empty policies are unknown."""
    if not isinstance(name, str):
        raise TopologyError(f"existing: found {shown(name)}, expected the name of a topic")
    where = f"existing[{name!r}]"
    fields = what if isinstance(what, Mapping) else {"partitions": what}
    for field in fields:
        if field not in _FIELDS:
            raise TopologyError(
                f"{where}: found an unknown field {field!r}; {nearest(field, _FIELDS)}", node=name
            )
    if "partitions" not in fields:
        raise TopologyError(f"{where}.partitions: missing, expected a whole number >= 1", node=name)
    count = check_count(fields["partitions"], f"{where}.partitions" if fields is what else where, name)
    policy = fields.get("cleanup.policy")
    if policy is None:
        return count, frozenset()
    words = [word.strip() for word in policy.split(",")] if isinstance(policy, str) else []
    if not words or not set(words) <= set(_POLICIES):
        raise TopologyError(
            f"{where}.cleanup.policy: found {shown(policy)}, expected compact, delete, or both separated by a comma",
            node=name,
        )
    return count, frozenset(words)


def _of_our_form(name: str, prefix: str) -> bool:
    """Return whether a topology could have an internal topic with this name."""
    return name.startswith(prefix) and any(
        name.endswith(end) and is_legal_name(name[len(prefix) : -len(end)]) for end in _ENDS
    )


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """The differences between a plan and the existing topics.

    - `create`: missing topics
    - `differ`: (planned topic, existing partition count) pairs that differ
    - `policies`: (planned topic, existing clean-up policies) pairs that differ
    - `unneeded`: existing topics that the plan does not need
    - `owned`: whether a prefix was given, so that unneeded topics belong to this application
    """

    create: tuple[InternalTopic, ...]
    differ: tuple[tuple[InternalTopic, int], ...]
    policies: tuple[tuple[InternalTopic, frozenset[str]], ...]
    unneeded: tuple[str, ...]
    owned: bool

    def __bool__(self) -> bool:
        return bool(self.create or self.differ or self.policies or self.unneeded)

    def __str__(self) -> str:
        lines = [f"create: {t.name} ({t.partitions} partitions)" for t in self.create]
        lines += [
            f"differs: {t.name} ({instead} partitions, expected {t.partitions})" for t, instead in self.differ
        ]
        lines += [
            f"differs: {t.name} (cleanup.policy {','.join(sorted(instead))}, expected {t.cleanup_policy})"
            for t, instead in self.policies
        ]
        word = "unneeded" if self.owned else "unneeded, if no other application's"
        lines += [f"{word}: {name}" for name in self.unneeded]
        return "\n".join(lines) or "internal topics are as planned"


def plan_internal_topics(built: TopologyView) -> InternalTopics:
    """Return the internal topics of a ready topology. Errors: `TopologyNotReady`.

    A repartition topic that exists with another count (reason `internal`) does not prevent planning. The plan has the
    right count.
    """
    against = [r.text for r in built.readiness().reasons if r.kind != "internal"]
    if against:
        raise TopologyNotReady(f"topology {built.name!r} is not ready: {'; '.join(against)}")
    topics = [
        InternalTopic(
            name=n.topic,
            kind="repartition",
            owner=n.name,
            partitions=n.partitions,
            cleanup_policy="delete",
        )
        for n in built.nodes
        if n.kind == "repartition" and n.topic is not None and n.partitions is not None
    ]
    for sub in built.subtopologies:
        for store in sub.stores:
            if store.changelog is not None:
                policy: Literal["compact", "compact,delete"] = (
                    "compact" if store.retention_ms is None else "compact,delete"
                )
                topics.append(
                    InternalTopic(
                        name=store.changelog,
                        kind="changelog",
                        owner=store.name,
                        partitions=sub.partitions,
                        cleanup_policy=policy,
                        retention_ms=store.retention_ms,
                    )
                )
    others = {n.topic for n in built.nodes if n.kind == "source" and not n.internal and n.topic}
    others |= {n.target for n in built.nodes if n.kind == "sink" and isinstance(n.target, str)}
    return InternalTopics(tuple(sorted(topics, key=lambda t: t.name)), frozenset(others))
