"""Tables fit any width: a row is a line, numbers are under their headings, and different texts look different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.wording import Column, fit, wrapped

COLUMNS = (
    Column("executor", text=True, least=12),
    Column("host", text=True, least=12, goes=1),
    Column("active", goes=2),
    Column("lag", goes=3),
)
names = st.text("abcdefgh-.0123", min_size=1, max_size=60)
tables = st.lists(
    st.tuples(names, names, st.integers(0, 10**4).map(str), st.integers(0, 10**13).map("{:,}".format)),
    max_size=6,
)


@given(rows=tables, width=st.integers(1, 200), gap=st.integers(1, 3))
def test_no_row_is_wider_than_its_room(rows, width, gap):
    fitted = fit(COLUMNS, rows, width, gap=gap)
    every = [[column.heading for column in fitted.columns], *fitted.rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(fitted.columns))]
    assert sum(widths) + gap * (len(widths) - 1) <= width
    assert fitted.columns[0].heading == "executor"[:width] or len(fitted.columns) == 1
    assert [len(row) for row in fitted.rows] == [len(fitted.columns)] * len(rows)


@given(rows=tables, width=st.integers(1, 200))
def test_numbers_stay_whole_and_end_under_their_headings(rows, width):
    fitted = fit(COLUMNS, rows, width)
    heading, lines = fitted.lines()
    if fitted.columns[-1].heading != "lag":
        return
    assert {len(line) for line in lines} <= {len(heading)}
    assert [line.split()[-1] for line in lines] == [row[-1] for row in rows]


@given(rows=tables, width=st.integers(1, 200))
def test_hosts_that_differ_look_different_or_are_left_out(rows, width):
    fitted = fit(COLUMNS, rows, width)
    headings = [column.heading for column in fitted.columns]
    if "host" in headings:
        place = headings.index("host")
        shown = [row[place] for row in fitted.rows]
        assert len(set(shown)) == len({row[1] for row in rows})


def test_without_a_limit_nothing_is_left_out():
    rows = [("e" * 90, "h" * 90, "1", "1,234,567,890")]
    heading, (line,) = fit(COLUMNS, rows, 10**9).lines()
    assert line == f"{'e' * 90}  {'h' * 90}       1  1,234,567,890"
    assert len(heading) == len(line)


@pytest.mark.parametrize("width", [20, 60])
def test_a_command_in_backquotes_stays_whole(width):
    command = "`taskplace inspect '/a b' --verify`"
    assert command in "\n".join(wrapped(f"damaged; {command} names files; a ` b `c", width))
