"""Functions of the user are called with the arguments that the runtime gives, or refused before anything starts.

Objects that files name as "module:attribute".
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from taskplace.errors import ConfigError
from taskplace.model.callables import UnknownName, check_function, load


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


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_module_of_a_user.py").write_text("class Totals:\n    def made(): ...\n")
    (tmp_path / "broken_module_of_a_user.py").write_text("''.nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "some_module_of_a_user"


def test_an_attribute_may_lie_in_another(module: str) -> None:
    assert load(f"{module}:Totals.made").__qualname__ == "Totals.made"


def test_an_unknown_name_comes_with_those_that_are_there(module: str) -> None:
    with pytest.raises(UnknownName, match="Total") as caught:
        load(f"{module}:Total")
    assert (caught.value.module, caught.value.known) == (module, (f"{module}:Totals",))
    with pytest.raises(UnknownName) as caught:
        load(f"{module}:Totals.mad")
    assert f"{module}:Totals.made" in caught.value.known


def test_an_error_of_the_module_itself_is_no_unknown_name(module: str) -> None:
    with pytest.raises(AttributeError, match="nothing") as caught:
        load("broken_module_of_a_user:Totals")
    assert not isinstance(caught.value, UnknownName)
