"""What is no processor is refused at the call, and one of another number of inputs at the start."""

from __future__ import annotations

import functools

import pytest

from taskplace.errors import InputError
from taskplace.spark.compile.programs import programs
from taskplace.spark.processors import Aggregate, Count, PerKey, TableJoin, sum_
from topology import Topology

BY = {"k": "string"}


def one(context, rows):
    return rows


def two(context, rows, table, *, least=3):
    return rows


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (
            two,
            r"'a function with the parameters \(context, rows, table, \*, least=3\)', expected parameters for the "
            "context and 1",
        ),
        (
            TableJoin("j", by=BY, columns={"v": "long"}),
            r"'TableJoin\.process with the parameters \(context, stream, table\)', expected parameters for the "
            "context and 1",
        ),
        ("a name", r"'a name', expected an object with process"),
        (object(), r"<object object at .*>, expected an object with process"),
        (None, r"'no processor', expected an object with process"),
    ],
)
def test_at_the_start(processor, says):
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(processor, name="p")
    with pytest.raises(InputError, match=rf"^nodes\.p\.processor: found {says}"):
        programs(topo.build())


def test_a_join_of_one_input():
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    rows.join_table(topo.source("more", key="k", partitions=2), Aggregate("s", by=BY, n=sum_("n")), name="p")
    with pytest.raises(
        InputError,
        match=r"found 'Aggregate\.process with the parameters \(context, rows\)'.*2 inputs: in, more$",
    ):
        programs(topo.build())


@pytest.mark.parametrize(
    "processor", [one, lambda *inputs: inputs[1], functools.partial(two, table=None), max, Count("c", by=BY)]
)
def test_those_that_are_let_through(processor):
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(processor, name="p")
    programs(topo.build())


class Declaring:
    """A processor whose declarations get no inputs."""

    def process(self, context, rows):
        return rows


@pytest.mark.parametrize(
    ("infer", "path", "says"),
    [
        (lambda self, a, b: None, "nodes.p.processor", r"'Declared\.infer with the parameters \(a, b\)'"),
        (lambda self, inputs: None, "nodes.p.processor.infer", ".*, expected an object of Facts"),
    ],
)
def test_an_answer_of_another_form(infer, path, says):
    processor = type("Declared", (Declaring,), {"infer": infer})()
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(processor, name="p")
    with pytest.raises(InputError, match=rf"^{path}: found {says}"):
        programs(topo.build())


def test_a_processor_whose_body_no_call_runs():
    def rows_one_by_one(context, rows):
        yield rows

    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(rows_one_by_one, name="p")
    with pytest.raises(
        InputError, match=r"^nodes\.p\.processor: found 'a generator function', expected a function of"
    ):
        programs(topo.build())


@pytest.mark.parametrize(
    "function", [lambda key, rows: (None, []), lambda key: None, lambda key, rows, state, x: None]
)
def test_the_function_of_a_per_key(function):
    with pytest.raises(
        InputError, match=r"^PerKey\('s'\)\.function: found .*expected a function of \(key, rows, state\)"
    ):
        PerKey("s", function, by=BY, state=BY, output=BY)
