"""Patterns of other members: they match what `re` matches, and none takes long to refuse or to use."""

from __future__ import annotations

import re
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from taskplace.errors import InputError
from taskplace.groups.messages import ProtocolError
from taskplace.groups.metadata import MOST_LETTERS, Subscription, Topics, compiled

atoms = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c]", "[]a]", "[^]a]", "[a-]", r"\d", r"\w", r"\W", r"\s",
     r"\.", r"[\d_]", r"[^\W]"]
)  # fmt: skip
counts = st.sampled_from(["*", "+", "?", "{2}", "{0}", "{1,}", "{0,}", "{1,3}", "*?", "{2}?"])
patterns = st.recursive(
    atoms | st.just(""),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}|{p[1]})"),
        st.tuples(inner, counts).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@given(patterns, st.lists(st.text("ab-1. \n_]cé", max_size=7), max_size=12))
def test_what_matches_is_what_re_matches(pattern, names):
    for whole in (pattern, f"^{pattern}$"):
        ready, expected = compiled(whole), re.compile(whole, re.ASCII)
        for name in names:
            assert (ready.fullmatch(name) is None) == (expected.fullmatch(name) is None), (whole, name)


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "[b-a]", "a**", "(?=a)", r"(a)\1", "a{1001}", "[[:nothing:]]", "a{" + "9" * 5_000 + "}",
     "((a{99}){99}){99}", "(a{1000})" * 50, r"\pL{200}", pytest.param("|".join(["a"] * 10**6), id="alternatives"),
     pytest.param("a" * (MOST_LETTERS + 1), id="letters")],
)  # fmt: skip
def test_what_is_no_pattern_or_too_large_is_refused_at_once(pattern, capfd):
    data = Subscription(pattern=pattern).encode()
    started = time.process_time()
    with pytest.raises(ProtocolError, match="subscription: found a bad pattern"):
        Subscription.decode(data)
    assert time.process_time() - started < 1
    with pytest.raises(InputError, match=r"^pattern: found"):
        compiled(pattern)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "pattern",
    ["(a|a)*b", "(a*)*b", "a*" * 100 + "b", "(a?){100}a{100}", "(.*a){60}", "[^b]*" * 90, "(a?){999}",
     "((a?b?){31}){30}", ".*a.{900}"],
)  # fmt: skip
def test_what_makes_others_backtrack_is_matched_in_one_pass(pattern):
    view = Topics({f"{'a' * 240}{k:03}": 1 for k in range(30)})
    started = time.process_time()
    view.matching(Subscription.decode(Subscription(pattern=pattern).encode()).pattern)
    took = time.process_time() - started
    assert took < 5, f"{took} s"  # exponential time would not end at all


def test_a_hash_covers_what_a_strategy_reads():
    here, there = (Topics({"t": 2, "u": 1}, {"t": racks}) for racks in (("r1", "r2"), ("r1", "r1")))
    assert here.hash(["t"]) == there.hash(["t"]) == Topics({"t": 2}).hash(["t"])
    assert here.hash(["t"], leaders=True) != there.hash(["t"], leaders=True)
    assert len({here.hash(topics) for topics in (["t"], ["u"], ["t", "u"], ["t", "v"], None)}) == 5
    assert Topics({"t": 0}).hash(["t"]) != Topics({}).hash(["t"])
