"""`taskplace partitions`: who gets which topic partitions, from a subscriptions.json, without Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import groupby

from taskplace.cli import codes
from taskplace.cli.engine import _json
from taskplace.errors import InvalidPlan
from taskplace.partitions import PartitionAssignment, Subscriptions, TopicPartition, assign_partitions
from taskplace.partitions.verify import violations


def partitions(args: argparse.Namespace) -> int:
    """Print the assignment: as a partition_assignment.json, or for people.

    The code is 3 if partitions change hands or more is to follow, 0 if not.
    """
    subscriptions = Subscriptions.from_dict(_json(args.file))
    made = assign_partitions(subscriptions, args.assignor)
    broken = next(violations(subscriptions, made), None)
    if broken is not None:
        raise InvalidPlan(str(broken))
    if args.output == "json":
        sys.stdout.write(made.to_json())
    else:
        _print(made)
    return codes.MOVES if made.moved or made.followup else codes.DONE


def _print(made: PartitionAssignment) -> None:
    width = max(len(name) for name in made.assignment)
    for name, held in made.assignment.items():
        print(f"{name:<{width}}  {len(held)}: {compact(held)}")
        for what, more in (("follows", made.standby.get(name)), ("after them", made.withheld.get(name))):
            if more:
                print(f"{'':<{width}}  {what} {len(more)}: {compact(more)}")
    if made.unassigned:
        print(f"unassigned, nobody subscribes: {', '.join(made.unassigned)}")
    for warning in made.warnings:
        print(f"warning: {warning}")
    misses = f", {made.rack_misses} away from their racks" if made.rack_misses else ""
    later = "; assign again when this is in force" if made.followup else ""
    print(
        f"balance score {made.balance_score}, {made.preserved} preserved, {made.moved} moved{misses}{later}"
    )


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
