"""Dealing: who gives up which partitions, and who gets what is free, against a plain reading of the rules."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from taskplace.groups.sticky import deal


@st.composite
def hands(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[list[int]], list[list[int]]]:
    """Class, topic and keeper of each partition; how many each member keeps of a class, and gets in all."""
    members, classes = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    of = draw(st.lists(st.integers(-1, classes - 1), min_size=1, max_size=14))
    topic = [draw(st.integers(0, 2)) for _ in of]
    keeper = [draw(st.integers(-1, members - 1)) if k >= 0 else -1 for k in of]
    held = Counter(zip(of, keeper, strict=True))
    keep = [[draw(st.integers(0, held[k, m])) for m in range(members)] for k in range(classes)]
    counts = [list(row) for row in keep]
    for k in range(classes):
        for _ in range(of.count(k) - sum(keep[k])):
            counts[k][draw(st.integers(0, members - 1))] += 1
    return of, topic, keeper, keep, counts


def plainly(
    of: list[int], topic: list[int], keeper: list[int], keep: list[list[int]], counts: list[list[int]]
) -> list[int]:
    goal = [-1] * len(of)
    for k, row in enumerate(keep):
        for m, number in enumerate(row):
            mine = [p for p in range(len(of)) if (of[p], keeper[p]) == (k, m)]
            while (
                len(mine) > number
            ):  # of the topic it has most of; of equal ones the later topic, the last partition
                had = Counter(topic[p] for p in mine)
                most = max(had, key=lambda t: (had[t], max(p for p in mine if topic[p] == t)))
                mine.remove(max(p for p in mine if topic[p] == most))
            for p in mine:
                goal[p] = m
    height = [sum(row[m] for row in keep) for m in range(len(keep[0]))]
    for k, row in enumerate(counts):
        places = [number - kept for number, kept in zip(row, keep[k], strict=True)]
        for p in range(len(of)):
            if of[p] == k and goal[p] < 0:
                m = min((m for m in range(len(row)) if places[m]), key=lambda m: (height[m], m))
                goal[p], places[m], height[m] = m, places[m] - 1, height[m] + 1
    return goal


@settings(max_examples=300, deadline=None)
@given(hands())
def test_cards_are_given_up_and_dealt_by_the_rules(
    drawn: tuple[list[int], list[int], list[int], list[list[int]], list[list[int]]],
) -> None:
    of, topic, keeper, keep, counts = (np.array(part, np.int64) for part in drawn)
    assert deal(of, topic, keeper=keeper, keep=keep, counts=counts).tolist() == plainly(*drawn)
