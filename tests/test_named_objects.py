"""Objects that files name as "module:attribute"."""

from __future__ import annotations

from pathlib import Path

import pytest
from taskplace.model.callables import UnknownName, load


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


@pytest.mark.parametrize("name", ["", "json", "json:", ":dump"])
def test_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected the form 'module:attribute'"):
        load(name)
