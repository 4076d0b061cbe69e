"""Patterns of other members: they match what `re` matches, and none takes long to refuse or to use."""

from __future__ import annotations

import random
import re
import time
import warnings

import hypothesis.strategies as st
import pytest
from hypothesis import given

from taskplace.errors import InputError
from taskplace.groups.membership import ProtocolError, Subscription, Topics
from taskplace.groups.metadata import MOST_LETTERS, Pattern

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
        st.tuples(inner, counts).map(lambda p: f"({p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@given(patterns, st.lists(st.text("ab-1. \n_]cé", max_size=7), max_size=12))
def test_what_matches_is_what_re_matches(pattern: str, names: list[str]) -> None:
    for around in ("{}", "^{}$"):
        whole = around.format(pattern)
        ready = Pattern(whole)
        expected = re.compile(whole, re.ASCII)
        for name in names:
            assert ready.matches(name) == bool(expected.fullmatch(name)), (whole, name)


BAD = ["(", ")", "a)", "[", "[a", "[b-a]", "a{3,2}", "*", "a**", "a*+", "(?=a)", "(?<!a)", "(?>a)", "(?x)a",
       r"\1", r"(a)\1", r"\Z", r"\é", "\\", "a{99999}", "a{1001}", "[[:nothing:]]"]  # fmt: skip
HUGE = {
    "a count of 5,000 digits": "a{" + "9" * 5_000 + "}",
    "all letters, without case": "(?i)" + "[\x00-\U0010ffff]" * 2_000,
    "a million alternatives": "|".join(["a"] * 10**6),
    "counts of counts": "((a{99}){99}){99}",
    "counts of nothing": "((){9999}){9999}",
    "counts that multiply to 1001": "((a{7}){11}){13}",
    "many counts": "(a{1000})" * 60,
    "a million brackets": "(" * 10**6,
    "many classes of all letters": r"\pL{200}",
    "one letter too many": "a" * (MOST_LETTERS + 1),
}


@pytest.mark.parametrize("pattern", [*BAD, *(pytest.param(text, id=name) for name, text in HUGE.items())])
def test_what_is_no_pattern_or_too_large_is_refused_at_once(pattern: str) -> None:
    data = Subscription(pattern=pattern).encode()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        started = time.process_time()
        with pytest.raises(ProtocolError, match=r"subscription\.pattern: found .*, expected"):
            Subscription.decode(data)
        took = time.process_time() - started
        with pytest.raises(InputError, match="pattern"):
            Pattern(pattern)
    assert took < 1, f"{took} s"  # a million letters are inflated, and that is all


@pytest.mark.parametrize(
    "pattern",
    ["(a|a)*b", "(a*)*b", "(a|aa)+$", "a*" * 100 + "b", "(a?){100}a{100}", "(.*a){60}", "(a?){128}" * 2,
     "[^b]*" * 90, "(a?){999}", "((a?b?){31}){30}", "((.*a){30}){30}", ".*a.{900}"],
)  # fmt: skip
def test_what_makes_others_backtrack_is_matched_in_one_pass(pattern: str) -> None:
    view = Topics({f"{'a' * 240}{k:03}": 1 for k in range(30)})
    started = time.process_time()
    said = Subscription.decode(Subscription(pattern=pattern).encode())
    view.matching(said.pattern)
    took = time.process_time() - started
    assert took < 5, f"{took} s"  # exponential time would not end at all


def test_patterns_that_mutate_take_a_bounded_time_each() -> None:
    seed = 7
    print(f"seed {seed}")
    chance = random.Random(seed)
    letters = "ab01.-_|()[]{}*+?^$\\,dwsDWS:é"
    view = Topics(dict.fromkeys(("orders", "a" * 200, "ab01", "x-y_z.1"), 1))
    read = refused = 0
    slowest = 0.0
    for _ in range(4_000):
        pattern = "".join(chance.choices(letters, k=chance.randrange(40))) * chance.choice((1, 1, 1, 5, 50))
        started = time.process_time()
        try:
            view.matching(Subscription.decode(Subscription(pattern=pattern).encode()).pattern)
            read += 1
        except ProtocolError:
            refused += 1
        slowest = max(slowest, time.process_time() - started)
    print(f"{read} read, {refused} refused, {1000 * slowest:.1f} ms the slowest")
    assert read > 200 and refused > 200
    assert slowest < 1


def test_limits_are_where_they_say() -> None:
    assert Pattern("a{1000}").matches("a" * 1000)
    Pattern("()" * (MOST_LETTERS // 2))
    with pytest.raises(InputError, match=f"at most {MOST_LETTERS} letters"):
        Pattern("()" * (MOST_LETTERS // 2) + "|")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [("(?i)orders", "ORDERS", "order"), (r"[[:alpha:]]+", "orders", "orders1"), (r"\pL+", "bücher", "a1"),
     (r"\w+", "a1_", "bücher"), (r"\Qa.b\E", "a.b", "axb"), (r"a\.b|c", "c", "a.bc"), ("(?P<n>a)+", "aa", "b")],
)  # fmt: skip
def test_the_syntax_is_that_of_re2(pattern: str, yes: str, no: str) -> None:
    assert Pattern(pattern).matches(yes)
    assert not Pattern(pattern).matches(no)


def test_a_bad_pattern_is_reported_with_the_reason_and_nothing_is_written_to_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(InputError) as refused:
        Pattern("orders-(a", "topics.pattern")
    assert str(refused.value) == (
        "topics.pattern: found 'orders-(a', expected a regular expression in RE2's syntax; missing ): orders-(a"
    )
    with pytest.raises(InputError, match="too large"):
        Pattern("(a{1000})" * 50)
    Pattern("(a?){999}").matches("a" * 249)  # RE2's automaton runs out of memory, and another one takes over
    assert capfd.readouterr().err == ""


def test_what_is_no_text_is_refused() -> None:
    for wrong in ("\ud800", 5, b"orders", None):
        with pytest.raises(InputError, match="pattern: found"):
            Pattern(wrong)  # type: ignore[arg-type]
