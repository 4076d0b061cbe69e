"""How fast partitions are assigned: from nothing, steady, 10% more and 10% fewer members, 10% more partitions.

    python benchmarks/bench_partitions.py [--repeat 5] [--kafka-up-to 10000] [--json FILE]

10 topics. "equal": all members subscribe to all of them; "different": each to a random choice of 1 to 10 (the seed is
printed). Times are from typed subscriptions to a finished assignment, the best of `--repeat`, each on new objects
and after a garbage collection; the solver is loaded before. `from dict` is the conversion alone.

Beside it, if kafka-python is installed: its own sticky assignor on the same questions, once each, up to
`--kafka-up-to` partitions (it takes long). Its questions start from its own assignment of the case before, so that
each is measured at its own steady state. Score and moves are counted alike for both.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskplace.groups.partitions import Member, Subscriptions, TopicPartition, assign_partitions
from taskplace.groups.sticky import balance_score
from taskplace.groups.subscriptions import Ints

SIZES = ("equal 1000x20", "equal 10000x100", "equal 100000x1000", "different 1000x20", "different 10000x100",
         "different 100000x1000")  # fmt: skip
CASES = ("fresh", "steady", "+10% members", "-10% members", "+10% partitions")
SEED = 1
Owned = Mapping[str, tuple[TopicPartition, ...]]


class Questions:
    """The subscriptions of all cases, for one size; `owned` by what was assigned from nothing."""

    def __init__(self, kind: str, partitions: int, members: int) -> None:
        rng = random.Random(SEED)
        self.topics = {f"topic-{k}": partitions // 10 for k in range(10)}
        few = max(1, members // 10)
        names = [f"consumer-{k:05}" for k in range(members)]
        added = [f"new-{k:05}" for k in range(few)]
        names_of_topics = sorted(self.topics)
        self.heard = {
            n: tuple(names_of_topics if kind == "equal" else rng.sample(names_of_topics, rng.randint(1, 10)))
            for n in (*names, *added)
        }
        self.members = {
            "fresh": names, "steady": names, "+10% members": names + added, "-10% members": names[few:],
            "+10% partitions": names,
        }  # fmt: skip

    def ask(self, case: str, owned: Owned) -> Subscriptions:
        topics = {t: n + n // 10 if case == "+10% partitions" else n for t, n in self.topics.items()}
        members = {
            n: Member(self.heard[n], () if case == "fresh" else owned.get(n, ()), 1)
            for n in self.members[case]
        }
        return Subscriptions(topics, members)


def ours(questions: Questions, repeat: int) -> dict[str, Any]:
    first = assign_partitions(questions.ask("fresh", {})).assignment
    out: dict[str, Any] = {}
    for case in CASES:
        seconds = []
        for _ in range(repeat):
            question = questions.ask(case, first)
            gc.collect()
            begin = time.perf_counter()
            made = assign_partitions(question)
            seconds.append(time.perf_counter() - begin)
        out[case] = {"seconds": min(seconds), "score": made.balance_score, "moved": made.moved}
    document = questions.ask("steady", first).to_dict()
    seconds = []
    for _ in range(repeat):
        gc.collect()
        begin = time.perf_counter()
        Subscriptions.from_dict(document)
        seconds.append(time.perf_counter() - begin)
    out["from dict"] = {"seconds": min(seconds)}
    return out


def theirs(questions: Questions) -> dict[str, Any]:
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.protocol.consumer.group import JoinGroupResponse
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    def assign(s: Subscriptions) -> tuple[float, dict[str, tuple[TopicPartition, ...]]]:
        class Cluster:
            @staticmethod
            def partitions_for_topic(topic: str) -> set[int]:
                return set(range(s.topics[topic]))

            @staticmethod
            def topics() -> set[str]:
                return set(s.topics)

        members = []
        for name, m in s.members.items():
            wire = StickyPartitionAssignor._metadata(m.topics, m.owned or None, 1).encode()
            metadata = ConsumerProtocolSubscription.decode(wire)
            members.append(JoinGroupResponse.JoinGroupResponseMember(member_id=name, metadata=metadata))
        gc.collect()
        begin = time.perf_counter()
        made = StickyPartitionAssignor().assign(Cluster(), members)
        seconds = time.perf_counter() - begin
        return seconds, {n: tuple(TopicPartition(*tp) for tp in a.partitions()) for n, a in made.items()}

    out: dict[str, Any] = {}
    first: Owned = {}
    for case in CASES:
        s = questions.ask(case, first)
        seconds, made = assign(s)
        first = made if case == "fresh" else first
        out[case] = {"seconds": seconds, **_figures(s, made)}
    return out


def _figures(s: Subscriptions, made: Owned) -> dict[str, int]:
    import numpy as np

    loads: Ints = np.array([len(made[name]) for name in s.members], np.int64)
    kept = sum(len(set(m.owned) & set(made[name])) for name, m in s.members.items())
    return {"score": balance_score(loads), "moved": sum(len(m.owned) for m in s.members.values()) - kept}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(SIZES), help="comma-separated (%(default)s)")
    parser.add_argument(
        "--kafka-up-to", type=int, default=10_000, help="partitions (%(default)s); 0: not at all"
    )
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    try:
        import kafka
    except ImportError:
        kafka = None
        print("kafka-python is not installed: nothing to compare with")
    for mode in ("fair_sticky", "sticky_fair"):  # loads numpy's and the solver's parts
        assign_partitions(
            {"topics": {"t": 2, "u": 2}, "members": {"a": {"topics": ["t"]}, "b": {"topics": ["t", "u"]}}},
            mode,
        )
    results: dict[str, Any] = {}
    columns = (*CASES, "from dict")
    print(f"seed {SEED}; seconds, and in brackets balance score and moves")
    head = f"{'subscriptions':>24} | {'assignor':>12} | " + " | ".join(f"{c:>26}" for c in columns)
    print(head, "-" * len(head), sep="\n")
    for size in args.sizes.split(","):
        kind, _, counts = size.partition(" ")
        partitions, members = map(int, counts.split("x"))
        questions = Questions(kind, partitions, members)
        rows = {"taskplace": ours(questions, args.repeat)}
        if kafka is not None and partitions <= args.kafka_up_to:
            rows["kafka-python"] = theirs(questions)
        for name, row in rows.items():
            cells = " | ".join(f"{_cell(row.get(c)):>26}" for c in columns)
            print(f"{size:>24} | {name:>12} | {cells}", flush=True)
        results[size] = rows
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    seconds = f"{found['seconds']:.3f}"
    return f"{seconds} ({found['score']:,}; {found['moved']:,})" if "score" in found else seconds


if __name__ == "__main__":
    main()
