"""`taskplace partitions`: who gets which topic partitions, from a subscriptions.json, without Spark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from taskplace.cli import codes
from taskplace.cli.documents import json_document
from taskplace.cli.terminal import show
from taskplace.groups.partitioner import partition_for_key
from taskplace.groups.partitions import PartitionAssignment, Subscriptions, TopicPartition, assign_partitions


def partitions(args: argparse.Namespace) -> int:
    """Print the assignment: as a partition_assignment.json, or for people.

    The exit code is 3 if partitions move or another assignment must follow, else 0.
    """
    subscriptions = Subscriptions.from_dict(json_document(args.file, "subscriptions"))
    made = assign_partitions(subscriptions, args.assignor)
    if args.key is not None:
        _print_location(made, *args.key, as_json=args.output == "json")
        return codes.DONE
    if args.output == "json":
        sys.stdout.write(made.to_json())
    else:
        show(_lines(made, subscriptions.global_topics if made.assignor == "copartitioned" else ()))
    return codes.MOVES if made.moved or made.followup else codes.DONE


def _lines(made: PartitionAssignment, everywhere: Iterable[str]) -> Iterator[str]:
    width = max(len(name) for name in made.assignment)
    for name, held in made.assignment.items():
        yield f"{name:<{width}}  {len(held)}: {compact(held)}"
        if name in made.urls:
            yield f"{'':<{width}}  {_at(made.urls[name])}"
        for what, more in (("follows", made.standby.get(name)), ("after them", made.withheld.get(name))):
            if more:
                yield f"{'':<{width}}  {what} {len(more)}: {compact(more)}"
    if made.unassigned:
        yield f"unassigned, because no member subscribes: {', '.join(made.unassigned)}"
    if everywhere:
        yield f"on every subscriber: {', '.join(everywhere)}"
    for warning in made.warnings:
        yield f"warning: {warning}"
    misses = f", {made.rack_misses} outside their racks" if made.rack_misses else ""
    later = "; assign again when this assignment is in force" if made.followup else ""
    yield f"balance score {made.balance_score}, {made.preserved} preserved, {made.moved} moved{misses}{later}"


def _at(url: str | None, before: str = "") -> str:
    return "" if url is None else f"{before}at {url}"


def _print_location(made: PartitionAssignment, topic: str, key: str, *, as_json: bool) -> None:
    """Print who has the partition to which Kafka's producers send a key."""
    # Arguments that are no UTF-8 come with surrogates in place of their bytes; a key is its bytes.
    location = made.of_key(topic, key.encode(errors="surrogateescape"), partition_for_key)
    if as_json:
        found = {**location._asdict(), "partition": list(location.partition)}
        print(json.dumps({"schema": "taskplace.partition_location/1", **found}))
        return
    active = "no member yet" if location.active is None else f"{location.active}{_at(location.url, ' ')}"
    print(f"{compact([location.partition])}  {active}")
    for name, url in zip(location.standby, location.standby_urls, strict=True):
        print(f"  followed by {name}{_at(url, ' ')}")


def compact(held: Iterable[TopicPartition]) -> str:
    """Return sorted partitions, runs shortened.

    >>> compact([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 4)])
    't[0-2] u[4]'
    """
    out = []
    for topic, pairs in groupby(held, key=lambda tp: tp.topic):
        runs: list[list[int]] = []
        for _, number in pairs:
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        out.append(f"{topic}[{','.join(f'{a}-{b}' if b > a else str(a) for a, b in runs)}]")
    return " ".join(out) or "-"
