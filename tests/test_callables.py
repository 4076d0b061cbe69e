"""Functions of the user are called with the arguments that the runtime gives, or refused before anything starts."""

from __future__ import annotations

import functools

import pytest
from taskplace.model.callables import check_function, unfit

from taskplace.errors import ConfigError, InputError


class Called:
    def __call__(self, df): ...

    def publish(self, df, batch_id): ...


async def later(df, batch_id): ...


def yielding(df, batch_id):
    yield df


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (3, "3"),
        (lambda df: None, r"a function of \(df\)"),
        (lambda df, batch_id, more: None, r"\(df, batch_id, more\)"),
        (lambda df, *, batch_id: None, r"\(df, \*, batch_id\)"),
        (Called(), r"a function of \(df\)"),
        (Called.publish, r"\(self, df, batch_id\)"),
        (Called, r"a class of \(\)"),
        (len, r"\(obj, /\)"),
        (functools.partial(lambda df, batch_id: None, 1), r"\(batch_id\)"),
        (later, "an async function"),
        (functools.partial(later), "an async function"),
        (yielding, "a generator function"),
    ],
)
def test_what_cannot_be_called_is_refused(function, found):
    with pytest.raises(
        ConfigError, match=rf"^here: found .*{found}.*, expected a function of \(df, batch_id\)"
    ):
        check_function(function, "here", arguments=["df", "batch_id"], error=ConfigError)


@pytest.mark.parametrize(
    "function",
    [
        lambda df, batch_id: None,
        lambda *_: None,
        lambda df, batch_id, more=1, **named: None,
        Called().publish,
        functools.partial(lambda mode, df, batch_id: None, "append"),
        print,
        max,  # has no signature
    ],
)
def test_what_can_be_called_is_taken(function):
    check_function(function, "here", arguments=["df", "batch_id"])


def test_types_are_not_shown():
    def typed(df: dict[str, int]) -> None: ...

    assert unfit(typed, []) == "(df)"
    with pytest.raises(InputError, match=r"found 'a function of \(df\)', expected a function of \(\)"):
        check_function(typed, "here", arguments=[])
