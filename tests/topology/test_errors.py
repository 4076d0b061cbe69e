"""What errors show: the nearest known name, and values as YAML writes them, whatever refuses them."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError
from topology import Topology, TopologyError
from topology.errors import SHOWN, nearest, nearest_name, shown

EIGHT = [f"topic-{letter}" for letter in "abcdefgh"]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("topic-hh", EIGHT, "did you mean 'topic-h'?"),
        ("x", EIGHT[::-1], "known: " + ", ".join(EIGHT)),
        ("x", [*EIGHT, "topic-i"], "known: " + ", ".join(EIGHT) + ", ..."),
        ("x", [], "none is known"),
        (10**5000, ["10"], "known: 10"),
    ],
    ids=["near", "eight", "more than eight", "none", "a long integer"],
)
def test_the_hint_is_the_nearest_name_or_the_first_eight(name, known, hint):
    assert nearest(name, known) == hint


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("wether", ["flights", "weather"], "weather"),
        ("num.standby.replica", ["num.standby.replicas", "max.warmup.replicas"], "num.standby.replicas"),
        ("end", ["id", "end_offset"], "end_offset"),
        ("metric_port", ["metrics.port", "metrics.host"], "metrics.port"),
        ("dir", ["directory"], "directory"),
        ("kil", ["add", "kill"], "kill"),
        ("kk", ["k"], "k"),
        ("ba", ["ab", "cd"], "ab"),
        ("format", ["foreach", "kafka", "path"], ""),
        ("fish", ["bash", "zsh"], ""),
        ("--json", ["--set", "--output"], ""),
        ("replicas", ["num.standby.replicas", "max.warmup.replicas"], ""),
        ("", ["path"], ""),
        ("path", [], ""),
    ],
)  # fmt: skip
def test_only_a_name_that_is_alike_is_meant(name, known, meant):
    assert nearest_name(name, known) == meant


plain = st.none() | st.booleans() | st.integers() | st.text("ab :{}[],'\"#-.0nulltrue", max_size=8)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3), max_leaves=8
)


@given(st.lists(nested, max_size=3) | st.dictionaries(plain, nested, max_size=3))
def test_lists_and_mappings_are_yaml_that_reads_back(value):
    """Texts have Python's quotes; these letters are written alike in both."""
    text = shown(value)
    if len(text) <= SHOWN and "\\" not in text:
        assert yaml.safe_load(text) == value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "nothing"),
        ({"a": None}, "{a: null}"),
        ([True, ("x",)], "[true, ['x']]"),
        ({"no": {"null": 0.5}}, "{'no': {'null': 0.5}}"),
        ({"spark.ui.port": {}}, "{spark.ui.port: {}}"),
        ({3}, "{3}"),
    ],
)
def test_all_errors_show_a_value_alike(value, says):
    assert shown(value) == says
    assert f": found {says}, " in str(InputError("path", found=value, expected="x"))
    if value:
        with pytest.raises(TopologyError) as refused:
            Topology("t").source("a", partitions=value)
        assert f": found {says}, " in str(refused.value)


def test_what_cannot_be_printed_is_named():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    endless: list[object] = []
    endless.append(endless)
    assert shown({"a": [Broken()]}) == "a value of type dict that cannot be printed"
    assert shown(endless) == "a value of type list that cannot be printed"
    assert shown([10**5000]) == "[a number of 16610 bits]"
    assert shown("x" * 5000).endswith("... (5002 letters)")
