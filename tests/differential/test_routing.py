"""The model's own rule of which cases must be refused, beside what taskplace refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.differential import fuzz
from tests.differential.case import Case, Node, Source
from tests.differential.routing import MAY, MUST, has_cycle, one_task, predicted

COLUMNS = {"k": "int32", "x": "string", "i": "int64"}
KEYS = [(1, "a"), (2, "a"), (3, "a"), (1, "b"), (4, "a")]
ROWS = [{"k": k, "x": x, "i": i} for i, (k, x) in enumerate(KEYS)]


def source(key: str = "k", partitions: int = 4, **columns: str) -> Source:
    return Source({**COLUMNS, **columns}, [key] if key else [], partitions)


def count(before: str, *by: str, name: str = "n", **options: object) -> Node:
    options = {"by": [*by], "aggregates": {"v": ["count", None, "int64"]}, **options}
    return Node(name, "aggregate", [before], options)


def case(*nodes: Node, **sources: Source) -> Case:
    sources = sources or {"a": source()}
    batches = [dict.fromkeys(sources, ROWS)] * 2
    return Case(sources, [*nodes], [nodes[-1].name], batches)


RENAMED = Node("renamed", "rename", ["a"], {"names": {"k": "key"}, "function": True})
DECLARED = Node("renamed", "rename", ["a"], {"names": {"k": "key"}})
AS_BOOL = Node("cast", "cast", ["a"], {"kinds": {"k": "bool"}, "function": True})
AS_TEXT = Node("cast", "cast", ["a"], {"kinds": {"k": "string"}})
FILTERED = Node("some", "where", ["a"], {"column": "i", "less": 100, "function": True})
MERGED = Node("both", "merge", ["a", "b"])
SOME = Node("both", "merge", ["some", "b"])
AGAIN = Node("by", "repartition", ["cast"], {"key": ["k"], "partitions": 3})
SHARED = count("a", "k"), count("b", "k", name="m", store="n")
BY_X = Node("by-x", "repartition", ["a"], {"key": ["x"], "partitions": 4})
CASES = {
    "has the key": (case(count("a", "k")), ""),
    "lacks the key": (case(count("a", "x")), MUST),
    "lacks the key behind a function": (case(FILTERED, count("some", "x")), MUST),
    "lacks the key in one task": (case(count("a", "x"), a=source(partitions=1)), ""),
    "no key": (case(count("a", "k"), a=source("")), MUST),
    "no key, repartitioned": (case(BY_X, count("by-x", "x"), a=source("")), ""),
    "unequal partitions": (case(MERGED, count("both", "k"), a=source(), b=source(partitions=3)), MUST),
    "split alike": (case(MERGED, count("both", "k"), a=source(), b=source()), ""),
    "split by others": (case(MERGED, count("both", "k", "x"), a=source(), b=source("x")), MUST),
    "split, behind a function": (
        case(FILTERED, SOME, count("both", "k", "x"), a=source(), b=source("x")),
        MUST,
    ),
    "renamed": (case(RENAMED, count("renamed", "key")), MAY),
    "kept in a type that merges": (case(AS_BOOL, count("cast", "k")), MUST),
    "renamed, merging type": (case(DECLARED, count("renamed", "key", kept={"key": "bool"})), MUST),
    "renamed, kept in another type": (case(DECLARED, count("renamed", "key", kept={"key": "int64"})), ""),
    "kept in a type that does not": (case(count("a", "k", kept={"k": "int64"})), ""),
    "cast, repartitioned": (case(AS_TEXT, AGAIN, count("by", "k")), ""),
    "counts of changes": (case(count("a", "k"), count("n", "k", name="again")), MAY),
    "counts, declared": (case(count("a", "k"), count("n", "k", name="again", over_changes=True)), ""),
    "a shared store": (case(*SHARED, a=source(), b=source()), ""),
    "a shared store, unequal partitions": (case(*SHARED, a=source(), b=source(partitions=3)), MUST),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_and_what_is_refused_agree(name: str) -> None:
    drawn, says = CASES[name]
    assert predicted(drawn) == says
    told, _, how = fuzz.attempt(drawn, "model")
    assert told is not None, how
    refused = bool(told.totals["refused"] or told.totals["values refused"])
    assert refused if says == MUST else not refused or says == MAY


def test_a_case_that_has_to_run_fails_when_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.differential.lives.predicted", lambda case: "")
    assert fuzz.attempt(CASES["lacks the key"][0], "model")[1] == "TopologyError"


@pytest.mark.parametrize("name", ["lacks the key", "unequal partitions", "no key"])
def test_what_must_be_refused_fails_when_it_runs_and_is_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskplace.spark.compile.infer.check_keys", lambda *args: None)
    assert fuzz.attempt(CASES[name][0], "model")[1] == "mismatch, sink"


def test_what_one_task_gives_is_right() -> None:
    drawn = one_task(CASES["lacks the key"][0])
    assert predicted(drawn) == "" and not fuzz.attempt(drawn, "model")[1]


def test_a_stream_that_meets_its_own_repartition_is_a_cycle() -> None:
    meets = Node("meets", "merge", ["a", "by-x"])
    assert has_cycle(case(BY_X, meets)) and not has_cycle(case(BY_X, replace(meets, inputs=["by-x"])))
