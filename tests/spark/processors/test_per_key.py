"""PerKey: a function per key, with that key's state."""

from __future__ import annotations

import math
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import PerKey

BY, STATE = {"tail": "string"}, {"n": "int64", "last": "string"}
OUTPUT = {"tail": "string", "n": "int64"}


def counter(key, rows, state):
    """Count rows; a row that says "forget" deletes the state, one that says "quiet" sends nothing."""
    n = (state["n"] if state else 0) + len(rows)
    said = [row["say"] for row in rows]
    if "forget" in said:
        return None, [{**key, "n": -1}]
    return {"n": n, "last": said[-1]}, [] if "quiet" in said else [{**key, "n": n}]


def per_key(function=counter, **more) -> PerKey:
    return PerKey("s", function, **({"by": BY, "state": STATE, "output": OUTPUT} | more))


def table(*rows: tuple) -> pa.Table:
    schema = pa.schema([("tail", pa.string()), ("say", pa.string())])
    return pa.Table.from_pylist([{"tail": tail, "say": say} for tail, say in rows], schema=schema)


said = st.tuples(
    st.none() | st.sampled_from(["a", "b", "c"]), st.none() | st.sampled_from(["x", "quiet", "forget"])
)


@settings(print_blob=True, deadline=None, max_examples=40)
@given(st.lists(st.lists(said, max_size=8), min_size=1, max_size=4))
def test_against_a_dict(bench, batches):
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), per_key())
        states: dict = {}
        for drawn in batches:
            groups: dict = {}
            for tail, say in drawn:
                groups.setdefault(tail, []).append({"tail": tail, "say": say})
            wanted = []
            for tail, group in groups.items():
                new, sent = counter({"tail": tail}, group, states.pop(tail, None))
                wanted += sent
                if new is not None:
                    states[tail] = new
            out = run.run(table(*drawn))
            assert out.to_pylist() == wanted
            assert out.schema == pa.schema([("tail", pa.string()), ("n", pa.int64())])
        assert run.stored("s") == sorted(
            ({"tail": tail, **state} for tail, state in states.items()), key=repr
        )


def test_a_key_is_what_the_store_says(bench, tmp_path):
    """Every NaN is one key, 0.0 and -0.0 are one, and a key has its declared type."""
    calls = []

    def keep(key, rows, state):
        calls.append((key["x"], len(rows), state and state["n"]))
        return {"n": len(rows) + (state["n"] if state else 0)}, []

    run = bench(tmp_path, per_key(keep, by={"x": "float64"}, state={"n": "int64"}))
    values = pa.table({"x": pa.array([0.0, -0.0, math.nan, -math.nan, None, 1.0], pa.float32())})
    run.run(values)
    run.run(values)
    assert str(calls[:4]) == str([(0.0, 2, None), (math.nan, 2, None), (None, 1, None), (1.0, 1, None)])
    assert str(calls[4:]) == str([(0.0, 2, 2), (math.nan, 2, 2), (None, 1, 1), (1.0, 1, 1)])


def test_state_of_any_type_comes_back(bench, tmp_path):
    when = datetime(2013, 1, 1, 5, tzinfo=timezone.utc)
    seen = []

    def keep(key, rows, state):
        seen.append(state)
        return {"at": when, "flag": None, "data": b"\x00"}, []

    run = bench(tmp_path, per_key(keep, state={"at": "timestamp", "flag": "bool", "data": "binary"}))
    run.run(table(("a", "x")))
    run.run(table(("a", "x")))
    assert seen == [None, {"at": when, "flag": None, "data": b"\x00"}]


def test_what_is_left_out_of_a_state_is_null(bench, tmp_path):
    run = bench(tmp_path, per_key(lambda key, rows, state: ({"n": 1}, [])))
    run.run(table(("a", "x")))
    assert run.stored("s") == [{"tail": "a", "n": 1, "last": None}]


def test_the_function_may_change_what_it_was_given(bench, tmp_path):
    def greedy(key, rows, state):
        tail = key.pop("tail")
        rows.clear()
        return {"n": 1}, [{"tail": tail, "n": 1}]

    run = bench(tmp_path, per_key(greedy))
    assert run.run(table(("a", "x"))).to_pylist() == [{"tail": "a", "n": 1}]
    assert run.stored("s")[0]["tail"] == "a"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"x": 1}, r"PerKey\('s'\)\.function: found \{x: 1\}, expected \(the new state"),
        (None, r"function: found nothing, expected \(the new state"),
        (({"x": 1}, None), r"function: found .*expected \(the new state"),
        ((5, []), r"function: found \[5, \[\]\]"),
        (({"x": 1}, {"k": "a"}), r"function: found"),
        (({"x": 1}, [{"kk": 1}]), r"PerKey\('s'\)\.output: found 'kk', expected one of k"),
        (({"y": 1}, []), r"PerKey\('s'\)\.state: found 'y', expected one of x"),
    ],
)
def test_an_answer_of_another_form_is_refused(bench, tmp_path, answer, message):
    per_key = PerKey("s", lambda *_: answer, by={"k": "string"}, state={"x": "int64"}, output={"k": "string"})
    with pytest.raises(InputError, match=message):
        bench(tmp_path, per_key).run(pa.table({"k": ["a"]}))


@pytest.mark.parametrize("column", ["att", "k", 5])
def test_an_event_time_is_a_time_of_the_output(column):
    with pytest.raises(
        InputError,
        match=r"^PerKey\('s'\)\.event_time: found .*, expected a timestamp or date column of its output",
    ):
        PerKey(
            "s",
            lambda key, rows, state: (state, rows),
            by={"k": "string"},
            state={"n": "int64"},
            output={"k": "string", "at": "timestamp"},
            event_time=column,
        )
